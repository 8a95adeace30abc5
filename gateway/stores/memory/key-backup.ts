import type { Level } from '../../limiter/bucket.ts';
import { DAY, MINUTE, SECOND } from '../../limiter/clock.ts';
import type { KeyEntry, KeyRecord, KeyState } from '../../limiter/key-record.ts';
import { NOBODY, type Queue } from '../../limiter/queue.ts';
import type { Mark } from '../../limiter/usage-marks.ts';
import type { KeyFields } from '../key-backup.ts';
import { KEPT_OF_REVOKED, toEntry, toHash, toRecord, toSeconds, USED } from '../redis/key-hash.ts';

/**
 * Converts keys of the embedded store to the fields that they would have in Redis: a backup of one works for the other.
 */

const DECIMALS = 1e12;

export const toFields = (record: KeyRecord, state: KeyState | undefined): KeyFields => ({
  ...toHash(record),
  ...(state && stateFields(state)),
});

/** Undefined if the fields do not make a key. */
export function fromFields(id: string, fields: KeyFields): { record: KeyRecord; state: KeyState } | undefined {
  const record = toRecord(id, fields);
  if (record === undefined) return undefined;
  const { id: _id, isReadable: _isReadable, record: _record, isRevoked: _isRevoked, ...state } = toEntry(id, fields);
  return { record, state: { ...state, queue: readQueue(fields.waiting) } };
}

/** What is left of a key once it is revoked: what Redis keeps, too. */
export function toRevokedEntry(id: string, record: KeyRecord, state: KeyState | undefined): KeyEntry {
  const fields = Object.entries(toFields(record, state)).filter(([field]) => KEPT_OF_REVOKED.includes(field));
  return { ...toEntry(id, Object.fromEntries(fields)), isRevoked: true };
}

/** In decide.lua's format. */
function stateFields(state: KeyState): KeyFields {
  const { asOf, bannedUntil, bans, admitted, refused, shadowed, usage, used, queue, banReason } = state;
  const levels = asOf !== undefined && {
    as_of: toSeconds(asOf),
    minute_left: toLevel(state.minute, MINUTE),
    day_left: toLevel(state.day, DAY),
  };
  const fields = {
    ...levels,
    waiting: queue && QUEUE_MEMBERS.map((member) => queue[member]).join(' '),
    banned_until: bannedUntil === 0 ? undefined : toSeconds(bannedUntil),
    bans: toCount(bans),
    admitted: toCount(admitted),
    refused: toCount(refused),
    shadowed: toCount(shadowed),
    usage_minutes: toMarks(usage.minutes),
    usage_days: toMarks(usage.days),
    ...Object.fromEntries(Object.entries(used).map(([digest, at]) => [USED + digest, String(at / SECOND)])),
    ban_reason: banReason?.text,
    ban_reason_until: banReason && toSeconds(banReason.until),
    ban_decided: bannedUntil === 0 || banReason?.until === bannedUntil ? undefined : toSeconds(bannedUntil),
  };
  return Object.fromEntries(Object.entries(fields).filter((field): field is [string, string] => Boolean(field[1])));
}

const QUEUE_MEMBERS = Object.keys(NOBODY) as (keyof Queue)[];

function readQueue(text = ''): Queue | undefined {
  if (!/^\d{1,16}( \d{1,16}){14}$/.test(text)) return undefined;
  const numbers = text.split(' ').map(Number);
  return Object.fromEntries(QUEUE_MEMBERS.map((member, at) => [member, numbers[at]])) as unknown as Queue;
}

const toCount = (count: number): string | undefined => (count === 0 ? undefined : String(count));

const toLevel = ({ tokens, fraction }: Level, window: number): string =>
  `${tokens}.${String(Math.floor((fraction / window) * DECIMALS + 0.5)).padStart(12, '0')}`;

const toMarks = (marks: readonly Mark[]): string =>
  marks.map(({ at, admitted, refused }) => `${at}:${admitted}:${refused}`).join(' ');
