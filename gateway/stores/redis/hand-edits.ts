import type { Activity } from '../activity-entry.ts';
import { type Fields, readTime, recordFields } from '../key-hash.ts';
import type { FieldChange } from '../plan-history.ts';
import { DIGEST, fitsDigest, withDigest } from './record-digest.ts';

/**
 * Recognizes what was edited by hand in the hash of a key. A record does not fit its digest. A running ban was set by a
 * decision (`ban_decided`) or by an operator (`ban_reason_until`), or else by hand; and one of these that is gone was
 * lifted by hand. Older gateways leave less behind, so their changes can look like edits by hand.
 */

type Hash = Readonly<Record<string, string>>;

interface HandEdits {
  readonly entries: readonly Activity[];
  /** Accepts the edits, so that they are told once. */
  readonly changes: Fields;
  /** The hash as it was seen. Another gateway that accepts them first changes it. */
  readonly expected: Fields;
}

/** @param now Unix time in microseconds */
export function handEditsOf(id: string, hash: Hash, now: number): HandEdits {
  const ban = banEdit(hash, now);
  const isEdited = !fitsDigest(hash);
  const entries: Activity[] = [];
  if (isEdited) entries.push(byHand('key.change', id, 'The record is not as a gateway left it.'));
  if (ban !== undefined) entries.push(byHand(ban.action, id, 'No gateway did it.', ban.shown));
  return {
    entries,
    changes: { ...(isEdited && withDigest({}, hash)), ...ban?.changes },
    expected: { ...recordFields(hash), ...(isEdited && { [DIGEST]: hash[DIGEST] }), ...(ban && seen(hash)) },
  };
}

/** @param id of a key that has a place in the index, and no data */
export const deletionByHand = (id: string): Activity =>
  byHand('key.revoke', id, 'Its data is gone, or a gateway ended while it issued the key.');

/** Who did it is not known. */
const byHand = (action: Activity['action'], target: string, why: string, changes: FieldChange[] = []): Activity => ({
  actor: 'unknown',
  action,
  target,
  reason: `Found in Redis: ${why}`,
  via: 'by hand',
  changes,
});

const BAN_FIELDS = ['banned_until', 'ban_reason_until', 'ban_decided'] as const;

const seen = (hash: Hash): Fields => Object.fromEntries(BAN_FIELDS.map((field) => [field, hash[field]]));

interface BanEdit {
  readonly action: 'ban.set' | 'ban.lift';
  readonly shown: FieldChange[];
  readonly changes: Fields;
}

function banEdit(hash: Hash, now: number): BanEdit | undefined {
  const until = readTime(hash.banned_until) ?? 0;
  const known = [hash.ban_reason_until, hash.ban_decided].map((text) => readTime(text) ?? 0);
  if (until > 0 && known.includes(until)) return undefined;
  if (until > now) {
    return {
      action: 'ban.set',
      shown: [{ field: 'bannedUntil', to: new Date(until / 1_000).toISOString() }],
      changes: { ban_reason: 'Set in Redis, by hand', ban_reason_until: hash.banned_until },
    };
  }
  if (!known.some((end) => end > now)) return undefined;
  return {
    action: 'ban.lift',
    shown: [],
    changes: { ban_reason: undefined, ban_reason_until: undefined, ban_decided: undefined },
  };
}
