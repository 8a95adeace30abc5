import type { Activity, FieldChange } from './audit.ts';
import {
  editedFields,
  faultIn,
  inForce,
  isTyped,
  KEPT_FIELDS,
  type RejectedField,
  recordFields,
  withKept,
} from './key-hash.ts';
import { readSecrets } from './secret-fields.ts';
import type { FieldChanges, Fields } from './storage.ts';
import { readTime } from './stored-time.ts';

/**
 * Recognizes what was edited by hand in the record of a key. Edited fields differ from the copies that a gateway kept.
 * A running ban that neither a decision (`ban_decided`) nor an operator (`ban_reason_until`) has set was set by hand. A
 * ban that one of them has set, but that is missing, was lifted by hand.
 */

interface HandEdits {
  readonly entries: readonly Activity[];
  /** Accepts the edits, so that they are recorded only once. */
  readonly changes: FieldChanges;
}

/** The field that lists reported invalid values, so that each is reported only once. */
const REJECTED = 'rejected';

/** The invalid values in a record. A secret has no last good value. */
function rejectedIn(hash: Fields): RejectedField[] {
  const secrets = Object.entries(hash).flatMap(([field, value]) =>
    readSecrets({ [field]: value }).flatMap(({ id, unreadable }) =>
      unreadable ? [{ field: `secret ${id}`, value, kept: undefined }] : [],
    ),
  );
  return [...inForce(hash).rejected, ...secrets];
}

/** Notes that the invalid values in a record were reported. */
export const reported = (hash: Fields): FieldChanges => ({
  [REJECTED]:
    rejectedIn(hash)
      .map(({ field, value }) => `${field}=${value}`)
      .join('\n') || undefined,
});

/** @param now Unix time in microseconds */
export function handEditsOf(id: string, hash: Fields, now: number): HandEdits {
  const edits = [recordEdit(hash), banEdit(hash, now)].filter((edit) => edit !== undefined);
  return {
    entries: edits.map(({ action, why = 'In Redis.', shown }) => byHand(action, id, why, shown)),
    changes: Object.assign({}, ...edits.map(({ changes }) => changes)),
  };
}

const BAN_FIELDS = ['banned_until', 'ban_reason_until', 'ban_decided'] as const;

/** What a change expects of a record, so that it fails if another gateway accepts the edit first. */
export const seenOf = (hash: Fields): FieldChanges => ({
  ...recordFields(hash),
  ...Object.fromEntries([...KEPT_FIELDS, REJECTED, ...BAN_FIELDS].map((field) => [field, hash[field]])),
});

/** The actor is unknown. */
export const byHand = (
  action: Activity['action'],
  target: string,
  why: string,
  changes: readonly FieldChange[] = [],
): Activity => ({
  actor: 'unknown',
  action,
  target,
  reason: `Made outside the gateway. ${why}`,
  via: 'by hand',
  changes: [...changes],
});

interface Edit {
  readonly action: Activity['action'];
  readonly why?: string | undefined;
  readonly shown: readonly FieldChange[];
  readonly changes: FieldChanges;
}

/** Keeps the present values from now on. An invalid value is reported, and the last good one stays. */
function recordEdit(hash: Fields): Edit | undefined {
  const edited = editedFields(hash);
  if (edited === undefined) return undefined;
  if (isTyped(hash)) return adoption(hash, edited);
  const rejected = rejectedIn(hash);
  const { [REJECTED]: text } = reported(hash);
  const names = rejected.map(({ field }) => field);
  const good = edited.filter(({ field }) => !names.includes(field));
  if (good.length === 0 && text === hash[REJECTED]) return undefined;
  const why = rejected.map(({ field, kept }) => `${field} is not valid: ${kept ?? 'nothing'} stays in force.`);
  return {
    action: 'key.change',
    why: why.join(' ') || undefined,
    shown: text === hash[REJECTED] ? good : edited,
    changes: { ...withKept({}, inForce(hash).fields), [REJECTED]: text },
  };
}

/** Makes a key that was typed by hand a key like any other, except for its invalid values. */
function adoption(hash: Fields, shown: readonly FieldChange[]): Edit {
  const fault = faultIn(hash);
  const why = fault && `The key is not valid. ${fault}`;
  return { action: 'key.create', why, shown, changes: { ...withKept({}, hash), ...reported(hash) } };
}

function banEdit(hash: Fields, now: number): Edit | undefined {
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
