import { repeat } from '../../shared/process/repeat.ts';
import { type Activity, AuditLog, auditEntries, type FieldChange } from './audit.ts';
import {
  editedFields,
  faultIn,
  inForce,
  isTyped,
  KEPT_FIELDS,
  REVOKED_KEPT_SECONDS,
  readSecrets,
  recordFields,
  withKept,
} from './key-hash.ts';
import { bansSet, inForceInstead, type RejectedField, readBan } from './key-state.ts';
import type { PlanCache } from './plan-cache.ts';
import type { Plans } from './plans.ts';
import type { FieldChanges, Fields, KeyCursor, Storage } from './storage.ts';

const AT_ONCE = 50;

/** The check is cheap: it does nothing until the cache has read another table. */
const PLANS_EVERY_MS = 100;

const USUAL = {
  everyMs: 1_000,
  /** A new or restored key first gets its place in the order of keys, and then, within this time, its data. */
  withoutDataMs: 60_000,
};

/**
 * Records manual edits to plans, and to the records, secrets and bans of keys (including deleted keys), in the audit
 * log. Each gateway reads a few keys a second, starting at a random key, so more gateways find an edit sooner. An edit
 * is accepted and recorded in one step, so it is recorded only once. This function also writes a missing plan table
 * back. It runs until the signal is aborted. While the store is unavailable, it finds nothing.
 */
export function watchEdits(
  { storage, plans, planCache }: { storage: Storage; plans: Plans; planCache: PlanCache },
  signal: AbortSignal,
  { everyMs, withoutDataMs } = USUAL,
): void {
  /** When each listed key without data was first seen, by id. */
  const missing = new Map<string, number>();
  let at: number | undefined;
  let checkedVersion: string | undefined;

  async function checkPlans(): Promise<void> {
    const { version } = planCache;
    if (planCache.isMissing) {
      await plans.writeBack(planCache.lastGood);
    } else if (version !== checkedVersion) {
      // The table may have been edited again since the cache read it.
      checkedVersion = await plans.acceptEdit(planCache.lastGood);
    }
  }

  async function checkKeys(): Promise<void> {
    // While the table holds a bad value, the last good one must stay stored.
    if (planCache.rejected.length > 0) await plans.acceptEdit(planCache.lastGood);
    at ??= Math.floor(Math.random() * (await storage.countKeys()));
    const cursors = await storage.listKeys({ offset: at, limit: AT_ONCE, newestFirst: true });
    at = cursors.length < AT_ONCE ? 0 : at + AT_ONCE;
    await Promise.all(cursors.map(checkKey));
  }

  async function checkKey(cursor: KeyCursor): Promise<void> {
    const { id } = cursor;
    const fields = await storage.read(`key:${id}`);
    if (fields === undefined) return await miss(cursor);
    missing.delete(id);
    const { entries, changes } = handEditsOf(id, fields, Date.now() * 1_000);
    if (entries.length === 0) return;
    const part = { record: `key:${id}`, exists: true, expect: seenOf(fields), set: changes } as const;
    await storage.change({ parts: [part], entries: auditEntries(...entries) });
  }

  async function miss({ id, createdAt }: KeyCursor): Promise<void> {
    const since = missing.get(id) ?? Date.now();
    missing.set(id, since);
    if (Date.now() - since < withoutDataMs) return;
    missing.delete(id);
    // A person who adds a key to the list types whole seconds.
    const wasKey = !Number.isInteger(createdAt) || (await isInAuditLog(id));
    const entry = wasKey
      ? byHand('key.revoke', id, "The key's data is gone.")
      : byHand('key.reindex', id, 'The id was in the list of keys, but belongs to no key.');
    const record = `revoked:${id}` as const;
    const moveTo = { record, fields: [], seconds: REVOKED_KEPT_SECONDS, mark: 'deleted_by_hand' } as const;
    await storage.change({
      parts: [
        { record, exists: false },
        { record: `key:${id}`, exists: false, moveTo },
      ],
      entries: auditEntries(entry),
    });
  }

  async function isInAuditLog(id: string): Promise<boolean> {
    const query = { after: undefined, limit: 1, isWanted: ({ target }: { target: string }) => target === id };
    return (await new AuditLog(storage).list(query)).activity.length > 0;
  }

  void repeat(PLANS_EVERY_MS, signal, checkPlans);
  void repeat(everyMs, signal, checkKeys);
}

/**
 * Recognizes what was edited by hand in the record of a key. Edited fields differ from the copies that a gateway kept.
 * A running ban that neither a decision (`ban_decided`) nor an operator (`ban_reason_until`) has set was set by hand. A
 * ban that one of them has set, but that is missing, was lifted by hand.
 */

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

/**
 * @param now Unix time in microseconds
 * @returns the audit entries of the edits; and changes that accept them, so that they are recorded only once
 */
export function handEditsOf(id: string, hash: Fields, now: number): { entries: Activity[]; changes: FieldChanges } {
  const edits = [recordEdit(hash), banEdit(hash, now)].filter((edit) => edit !== undefined);
  return {
    entries: edits.map(({ action, why = '', shown }) => byHand(action, id, why, shown)),
    changes: Object.assign({}, ...edits.map(({ changes }) => changes)),
  };
}

const BAN_FIELDS = ['banned_until', 'ban_reason_until', 'ban_decided'] as const;

/** The values that a change expects in a record, so that it fails if another gateway accepts the edit first. */
export const seenOf = (hash: Fields): FieldChanges => ({
  ...recordFields(hash),
  ...Object.fromEntries([...KEPT_FIELDS, REJECTED, ...BAN_FIELDS].map((field) => [field, hash[field]])),
});

/** The audit entry of a manual edit, whose actor is unknown. */
const byHand = (
  action: Activity['action'],
  target: string,
  why: string,
  changes: readonly FieldChange[] = [],
): Activity => ({
  actor: 'unknown',
  action,
  target,
  reason: `Made outside the gateway. ${why}`.trimEnd(),
  via: 'by hand',
  changes: [...changes],
});

interface Edit {
  readonly action: Activity['action'];
  readonly why?: string | undefined;
  readonly shown: readonly FieldChange[];
  readonly changes: FieldChanges;
}

/** Accepts the current values. An invalid one is reported, and the last good one stays in force. */
function recordEdit(hash: Fields): Edit | undefined {
  const edited = editedFields(hash);
  if (edited === undefined) return undefined;
  if (isTyped(hash)) return adoption(hash, edited);
  const rejected = rejectedIn(hash);
  const { [REJECTED]: text } = reported(hash);
  const names = rejected.map(({ field }) => field);
  const good = edited.filter(({ field }) => !names.includes(field));
  if (good.length === 0 && text === hash[REJECTED]) return undefined;
  const why = rejected.map((one) => `${one.field} is not valid: ${inForceInstead(one)}.`);
  return {
    action: 'key.change',
    why: why.join(' ') || undefined,
    shown: text === hash[REJECTED] ? good : edited,
    changes: { ...withKept({}, inForce(hash).fields), [REJECTED]: text },
  };
}

/** Turns a key that was typed by hand into a key like any other, except for its invalid values. */
function adoption(hash: Fields, shown: readonly FieldChange[]): Edit {
  const fault = faultIn(hash);
  const why = fault && `The key is not valid. ${fault}`;
  return { action: 'key.create', why, shown, changes: { ...withKept({}, hash), ...reported(hash) } };
}

function banEdit(hash: Fields, now: number): Edit | undefined {
  const { until } = readBan(hash);
  const known = bansSet(hash);
  if (until > 0 && known.includes(until)) return undefined;
  if (until > now) {
    return {
      action: 'ban.set',
      shown: [{ field: 'bannedUntil', to: new Date(until / 1_000).toISOString() }],
      changes: {
        ban_reason: 'Set in Redis, by hand',
        ban_reason_until: hash.banned_until,
        ban_reason_since: undefined,
      },
    };
  }
  if (!known.some((end) => end > now)) return undefined;
  return {
    action: 'ban.lift',
    shown: [],
    changes: {
      ban_reason: undefined,
      ban_reason_until: undefined,
      ban_reason_since: undefined,
      ban_decided: undefined,
    },
  };
}
