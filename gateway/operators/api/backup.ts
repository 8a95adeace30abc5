import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { type CheckResult, good, warning } from '../../check-result.ts';
import { SECOND } from '../../limiter/bucket.ts';
import { isKeyId } from '../../limiter/credential.ts';
import { isOfFormerRule, isUsable, STORED_FIELDS, type StoredPlans } from '../../limiter/plans.ts';
import { type BackedUpKey, RESTORED_FOR_SECONDS } from '../../stores/keys.ts';
import { type MakeChanges, planOf } from '../../stores/plans.ts';
import { writeCursor } from '../../stores/storage.ts';
import { allOf, entry } from './activity.ts';
import { BackupAnswer, BackupNoted, RestoreAnswer } from './answers.ts';
import { toTime } from './key-view.ts';
import { type About, type AdminDependencies, operation } from './operation.ts';
import { applyChange } from './plans.ts';
import { after, choice, cursorIn, refusingProto, time, wholeNumber } from './values.ts';

/** The maximum number of keys per page. More could block Redis or this process. */
const BACKUP_PAGE = 100;

/** A page of keys is larger than the other request bodies of the admin API. A key can have a thousand fields. */
const PAGE_LIMITS = { bytes: 1_048_576, values: BACKUP_PAGE * 1_000 };

const MOST_SHOWN = 100;

/** Clocks may differ by this much. Backups are therefore accepted for a day less than revocation records are kept. */
const CLOCK_TOLERANCE_SECONDS = 86_400;

const BackupQuery = z.object({ limit: wholeNumber(1, BACKUP_PAGE).default(BACKUP_PAGE), after });

/**
 * Returns a page of the data that cannot be recreated, oldest key first, and the time at which it was read. The first
 * page includes the plans in force, even if the table itself contains invalid values. `leftOut` lists keys that
 * no restore would accept, and why.
 */
export const backUp = operation(
  { query: BackupQuery, answer: BackupAnswer, errors: [409] },
  async ({ deps, query }) => {
    const after = cursorIn(query.after);
    const at = toTime(await deps.keys.now());
    const plans = after === undefined ? { plans: await plansInForce(deps) } : {};
    const { keys, leftOut, next } = await deps.keys.export({ after, limit: query.limit });
    // The list is checked again at the end, because the pages lack keys that dropped out of it in the meantime.
    if (after === undefined || next === undefined) await checkOrder(deps);
    return { at, ...plans, keys, leftOut, next: next && writeCursor(next) };
  },
);

async function plansInForce({ plans, planCache }: AdminDependencies): Promise<StoredPlans | undefined> {
  const stored = await plans.read();
  await planCache.refresh();
  return planCache.lastGood ?? stored;
}

/** Makes sure that a backup contains every working key. @throws {HttpError} 409 if keys are missing from the list */
async function checkOrder({ keys }: AdminDependencies): Promise<void> {
  const { length } = await keys.unlisted();
  if (length === 0) return;
  const what = length === 1 ? 'One working key is' : `${length} working keys are`;
  throw new HttpError('conflict', `${what} missing from the list of keys, and so from a backup. Run: ctl keys reindex`);
}

const flag = choice(['true', 'false']).optional();

const RestoreQuery = z.object({ anyAge: flag, dryRun: flag });

const fieldsOfPlans = z.record(z.string(), z.unknown(), { error: must('be an object') });

/** Keys are checked one by one: an invalid key does not block the others. */
const BackupPage = z.strictObject({
  at: time.optional(),
  plans: refusingProto(fieldsOfPlans, 'is not a field of a plan').optional(),
  keys: z
    .array(z.unknown(), { error: must('be a list') })
    .max(BACKUP_PAGE, { error: `must have at most ${BACKUP_PAGE} entries` })
    .default([]),
  leftOut: z.unknown().optional(),
  next: z.unknown().optional(),
});

const Key = z.strictObject({
  id: z.string().refine(isKeyId),
  createdAt: z.number().optional(),
  fields: z.record(z.string(), z.string()),
});

type Rejected = RestoreAnswer['rejected'][number];

/**
 * Restores the keys and plan fields of a page that are missing. Existing data is not changed, except plans that are
 * still the built-in ones. It is therefore safe to send a page again, and to restore while clients are served. With
 * `dryRun=true` nothing is written, and the response reports what would be restored.
 * @throws {HttpError} 409 for a page so old that revoked keys could work again, unless the query has `anyAge=true`
 */
export const restore = operation(
  { needs: 'admin', query: RestoreQuery, body: BackupPage, bodyLimits: PAGE_LIMITS, answer: RestoreAnswer },
  async ({ deps, query: { anyAge, dryRun }, given: { at, plans, keys: given }, about }) => {
    const [isAnyAge, isTrial] = [anyAge === 'true', dryRun === 'true'];
    if (plans === undefined && given.length === 0)
      throw new HttpError('invalid_request', 'The body contains nothing to restore.');
    if (!isAnyAge && (at !== undefined || given.length > 0)) checkAge(at, await deps.keys.now());
    const restoredPlans = plans && (await restorePlans(deps, plans, about, isTrial));
    const entryFor = (id: string, name: string) =>
      entry(about, 'key.restore', id, allOf({ name, at, anyAge: isAnyAge ? 'true' : undefined }));
    const restoreOne = async (key: BackedUpKey | Rejected) => {
      if ('reason' in key) return key;
      const outcome = await deps.keys.restore(key, entryFor, isTrial);
      return typeof outcome === 'object' ? { id: key.id, reason: outcome.refused } : outcome;
    };
    const outcomes = await Promise.all(keysIn(given).map(restoreOne));
    const count = (wanted: string) => outcomes.filter((outcome) => outcome === wanted).length;
    const counts = { restored: count('restored'), present: count('present'), revoked: count('revoked') };
    return { ...counts, rejected: outcomes.filter((one) => typeof one === 'object'), plans: restoredPlans };
  },
);

/** @throws {HttpError} for a page with keys older than the revocation records */
function checkAge(at: string | undefined, now: number): void {
  if (at === undefined)
    throw new HttpError('invalid_request', 'at is required: the time at which the backup was made.');
  const age = now / SECOND - Date.parse(at) / 1_000;
  if (age >= -CLOCK_TOLERANCE_SECONDS && age <= RESTORED_FOR_SECONDS) return;
  const what = age < 0 ? 'which is in the future' : `more than ${RESTORED_FOR_SECONDS / 86_400} days ago`;
  const why = `This backup was made at ${at}, ${what}: keys revoked since then could work again.`;
  throw new HttpError('conflict', `${why} To restore it anyway, use ctl restore --any-age or anyAge=true.`);
}

/** Reads the keys of a page one by one. A second key with the same id is rejected. */
function keysIn(given: readonly unknown[]): (BackedUpKey | Rejected)[] {
  const seen = new Set<string>();
  return given.map((one) => {
    const id = shown((one as { id?: unknown } | null)?.id);
    const { success, data } = Key.safeParse(one);
    if (!success) return { id, reason: 'It must be { id, createdAt, fields }, with a valid key id and string fields.' };
    if (seen.has(id)) return { id, reason: 'The page has this key twice.' };
    seen.add(id);
    const { fields, createdAt = 0 } = data;
    return { id, createdAt, fields };
  });
}

/**
 * Adds missing fields, and replaces a plan that is still the built-in one if the page has all of its fields. A field
 * that already has another value is not changed but reported.
 */
async function restorePlans(
  deps: AdminDependencies,
  given: Readonly<Record<string, unknown>>,
  about: About,
  isTrial: boolean,
) {
  const fields = Object.entries(given);
  const isGood = ([name, value]: [string, unknown]): boolean =>
    STORED_FIELDS.includes(name) && typeof value === 'string' && isUsable(name, value) && !isOfFormerRule(given, name);
  const good = fields.filter((field): field is [string, string] => isGood(field));
  const isWholeIn = (field: string) => (field in given ? isGood([field, given[field]]) : isUsable(field, undefined));
  let [before, restored]: [StoredPlans, StoredPlans] = [{}, {}];
  const make: MakeChanges = (table, untouched) => {
    const whole = untouched.filter((plan) => STORED_FIELDS.filter((field) => planOf(field) === plan).every(isWholeIn));
    const isReplaced = (field: string) => whole.includes(planOf(field));
    const after = good.filter(([field]) => isReplaced(field) || !(field in table));
    // The optional fields that are absent from the backup.
    const gone = Object.keys(table).filter(
      (field) => isReplaced(field) && !(field in given) && isUsable(field, undefined),
    );
    const changes = [...after, ...gone.map((field) => [field, undefined] as const)];
    before = table;
    restored = Object.fromEntries(changes.filter(([field, value]) => table[field] !== value));
    return restored;
  };
  if (isTrial) make((await deps.plans.read()) ?? {}, await deps.plans.untouched());
  else {
    await applyChange({ deps, about, headers: [] }, make);
    await deps.planCache.refresh();
  }
  const other = good.filter(([field, value]) => !(field in restored) && before[field] !== value);
  const rejected = fields.filter((field) => !isGood(field)).slice(0, MOST_SHOWN);
  return {
    restored: Object.keys(restored),
    kept: other.map(([field, value]) => ({ field, value: shown(before[field]), backup: value })),
    rejected: rejected.map(([field]) => shown(field)),
  };
}

/** Shortens a string so that it fits in the response. */
const shown = (text: unknown): string => (typeof text === 'string' ? text.slice(0, MOST_SHOWN) : '');

const OLD_AFTER_SECONDS = 26 * 3_600;

/**
 * The client that wrote a backup reports it, because the gateway cannot know whether the file was saved. A backup
 * without keys does not count, because it would hide a loss of data.
 */
const BackupMade = z.strictObject({
  keys: z.int({ error: must('be a whole number') }).min(1, { error: must('be at least 1') }),
});

export const noteBackup = operation(
  { body: BackupMade, answer: BackupNoted, creates: true },
  async ({ deps, given: { keys }, about }) => {
    const seconds = Math.floor(Date.now() / 1_000);
    await deps.backups.note(seconds, entry(about, 'backup.make', '*', allOf({ keys: String(keys) })));
    return { completedAt: toTime(seconds * SECOND) };
  },
);

type Stores = Pick<AdminDependencies, 'backups' | 'keys'>;

/**
 * The time of the last complete backup in Unix seconds; 0 if there are keys but no backup.
 * @returns undefined if there is nothing to back up, or if the store does not respond
 */
export async function lastBackup({ backups, keys }: Stores): Promise<number | undefined> {
  try {
    const last = await backups.last();
    if (last !== undefined) return last;
    return (await keys.count()) > 0 ? 0 : undefined;
  } catch {
    return undefined;
  }
}

export async function checkBackup(stores: Stores): Promise<CheckResult[]> {
  const last = await lastBackup(stores);
  const advice = 'Run: ctl backup > keys.jsonl. See GatewayBackupMissing in the runbook.';
  // An empty store needs no backup, and a store that does not respond has its own finding.
  if (last === undefined) return [];
  if (last === 0) return [warning('backup', 'the keys have never been backed up', advice)];
  const found = `the last complete one was made at ${toTime(last * SECOND)}`;
  return [Date.now() / 1_000 - last > OLD_AFTER_SECONDS ? warning('backup', found, advice) : good('backup', found)];
}
