import { setTimeout as sleep } from 'node:timers/promises';
import { Unavailable } from '../../../shared/domain-errors.ts';
import type { SecretFile } from '../../../shared/process/secret.ts';
import { type CheckResult, fault, good, unknown, warning } from '../../check-result.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { isNetwork } from '../../limiter/networks.ts';
import {
  inForceInWords,
  isFormer,
  isPlanName,
  PLAN_NAMES,
  type Plan,
  type PlanField,
  type RejectedValue,
  rangeOf,
  STORED_FIELDS,
  whenAbsent,
} from '../../limiter/plans.ts';
import { mostBanAfter } from '../../limiter/refusals.ts';
import { inForceInstead } from '../../stores/key-state.ts';
import type { Keys } from '../../stores/keys.ts';
import type { PlanCache } from '../../stores/plan-cache.ts';
import { type KeyCursor, OtherValue } from '../../stores/storage.ts';
import type { Tokens } from '../../stores/tokens.ts';
import type { WorkersState } from '../../telemetry/state.ts';
import { DoctorAnswer } from './answers.ts';
import { checkBackup } from './backup.ts';
import { answered } from './health.ts';
import { operation } from './operation.ts';
import { checkRequests, coresOf, shownRejected } from './traffic.ts';

/**
 * Checks everything that the gateway depends on, and changes nothing. In a bad finding, `since` is when it first
 * appeared; every check since then has reported it.
 */
export const checkAll = operation({ answer: DoctorAnswer }, async ({ deps }) => {
  const { checks, traffic, health } = deps;
  const processes = traffic.source.processes();
  const asked = [
    ...Object.entries(checks).map(async ([about, look]) => {
      const found = await answered(about, look);
      health.note(about, found);
      return found;
    }),
    answered('requests to cores', () => checkRequests(coresOf(processes), processes.length)),
    answered('backup', () => checkBackup(deps)),
  ];
  const found = (await Promise.all(asked)).flat();
  return { findings: deps.findings.seen(found, health.bad()) };
});

/** Workers report twice a second. */
const SILENT_MS = 1_500;

/** A worker that does not report may hang. If it stays silent, the primary kills it. */
export const checkWorkers = (workers: WorkersState | undefined): CheckResult[] =>
  (workers?.each ?? []).flatMap(({ worker, pid, isStarting, silentMs }) => {
    const about = `worker ${worker}`;
    if (isStarting) return warning(about, 'is starting', 'If this lasts for more than a minute, see the log.');
    if (pid === undefined) return fault(about, 'is not running', 'It is being restarted. The log shows why it exited.');
    if (silentMs < SILENT_MS) return [];
    const found = `has not reported for ${(silentMs / 1_000).toFixed(1)} s`;
    return unknown(about, found, 'It will be replaced unless it reports again.');
  });

/** Reports files without which this gateway keeps working until it is started again. Without any, finds nothing. */
export function checkSettingFiles(files: readonly SecretFile[]): CheckResult[] {
  const about = 'setting files';
  const advice = 'Restore that file. A gateway that starts now exits with this error.';
  const faults = files.flatMap(({ setting, path, fault: why }) => {
    const found = `${setting} ${path} ${why}; the last value stays in force until a restart`;
    return why === undefined ? [] : [fault(about, found, advice)];
  });
  if (faults.length > 0 || files.length === 0) return faults;
  return [good(about, `${files.map(({ setting }) => setting).join(', ')} can be read`)];
}

/** Reports operators' tokens whose place holds something else. Otherwise, finds nothing: it is no check of the store. */
export async function checkTokens(tokens: Tokens): Promise<CheckResult[]> {
  const cause = await tokens.list().catch((fault: unknown) => fault);
  if (!(cause instanceof OtherValue)) return [];
  const found = 'gateway:tokens in Redis holds a value of the wrong type; named tokens get 503, and ADMIN_TOKEN works';
  return [fault('operator tokens', found, 'Run DEL gateway:tokens, then create the tokens again: ctl tokens create.')];
}

const TABLE = 'plan table';

export function checkPlans({
  rejected,
  isReadable,
  unreadableBecause,
  isMissing,
  lastGood,
  table,
}: PlanCache): CheckResult[] {
  const stays = lastGood === undefined ? 'clients get 503' : 'the last good one stays in force';
  if (!isReadable && !isMissing) {
    const isOtherType = unreadableBecause instanceof OtherValue;
    const advice = isOtherType ? 'It is not a hash: run DEL gateway:plans.' : 'The log shows the error.';
    return [(isOtherType ? fault : unknown)(TABLE, `cannot be read; ${stays}`, advice)];
  }
  if (isMissing && lastGood !== undefined)
    return [fault(TABLE, `is missing; ${stays}`, 'It will be restored within a second; see the log.')];
  if (lastGood === undefined) {
    const advice = 'Restore a backup with ctl restore, or set all of its values with HSET.';
    const typed = shownRejected(rejected.filter(({ value }) => value !== undefined));
    return [fault(TABLE, `is missing or incomplete; ${stays}`, advice), ...typed.map(checkRejected)];
  }
  const shadows = PLAN_NAMES.filter((name) => table[name].mode === 'shadow').map((name) =>
    warning(TABLE, `${name} is in shadow mode: it refuses nothing`, `ctl plans set ${name} --mode enforce`),
  );
  const patient = PLAN_NAMES.flatMap((name) => checkBanAfter(name, table[name]));
  const found = [...shownRejected(rejected).map(checkRejected), ...patient, ...shadows];
  return found.length === 0 ? [good(TABLE, 'every value is in force')] : found;
}

function checkRejected({ field, value, kept }: RejectedValue): CheckResult {
  const [plan = '', name = ''] = field.split('.');
  if (isFormer(field)) {
    const effect = `${plan}.ban_after is ignored, and ${whenAbsent('ban_after')} is in force`;
    const found = `${field} belongs to a rule that no longer exists: ${effect}`;
    return warning(TABLE, found, `ctl plans set ${plan} --ban-after none`);
  }
  const shown = value === undefined ? 'missing' : JSON.stringify(value);
  const stays = inForceInWords(kept);
  if (!STORED_FIELDS.includes(field)) {
    const quoted = /^[\w.]+$/.test(field) ? field : JSON.stringify(field);
    return fault(TABLE, `${quoted} is ${shown}; ${stays}`, `No plan has this field. Run: HDEL gateway:plans ${quoted}`);
  }
  const found = `${field} is ${shown}, which is not ${rangeOf(name as PlanField)}; ${stays}`;
  return fault(TABLE, found, `ctl plans set ${plan} --${name.replaceAll('_', '-')} …`);
}

function checkBanAfter(name: string, { minute, ban_after }: Plan): CheckResult[] {
  if (minute === undefined || ban_after === undefined || ban_after <= mostBanAfter(minute)) return [];
  const found = `${name}.ban_after is ${ban_after}, over eight times the minute limit: one burst per minute can get a key banned`;
  return [warning(TABLE, found, `ctl plans set ${name} --ban-after none`)];
}

/**
 * How long results are kept: longer for reading all keys, which is expensive, than for comparing their names with the
 * list.
 */
const KEYS_KEPT_MS = 60_000;
const LIST_KEPT_MS = 2_000;
const MOST_NAMED = 10;

/**
 * How long a response waits for a check of all keys. A longer check continues, and its result is in a later response.
 */
const PATIENCE_MS = 1_500;

interface Seen {
  readonly total: number;
  readonly findings: readonly CheckResult[];
}

/**
 * Wraps a slow check so that only one runs at a time, and its result is kept for a while. A good result is reused
 * unless keys have dropped out of the list. A bad one is not reused, so that a fix is visible at once.
 * @returns undefined if the keys cannot be read, after a call of `onFault`
 */
function slowCheck(about: string, check: () => Promise<Seen>, keptMs: number, onFault: (cause: unknown) => undefined) {
  let kept: (Seen & { readonly at: number }) | undefined;
  let running: Promise<Seen | undefined> | undefined;
  const once = async () => {
    const seen = await check().catch(onFault);
    if (seen !== undefined) kept = { ...seen, at: performance.now() };
    running = undefined;
    return seen;
  };
  return async (total: number): Promise<readonly CheckResult[] | undefined> => {
    const last = kept !== undefined && total >= kept.total ? kept : undefined;
    const age = performance.now() - (last?.at ?? 0);
    if (last?.findings.every(({ status }) => status === 'good') && age <= keptMs)
      return age < 1_000 ? last.findings : aged(last.findings, age);
    running ??= once();
    const seen = await Promise.race([running, sleep(PATIENCE_MS, 'late' as const, { ref: false })]);
    if (seen !== 'late') return seen?.findings;
    if (last === undefined)
      return [warning(about, `still being checked: ${total} keys`, 'Run the doctor again in a few seconds.')];
    return aged(last.findings, age);
  };
}

/** Adds the age of a kept result to its findings, because a bad value may have been written since then. */
const aged = (findings: readonly CheckResult[], ageMs: number): readonly CheckResult[] =>
  findings.map((one) => ({ ...one, found: `${one.found}, ${Math.round(ageMs / 1_000)} s ago` }));

const LOST = fault(
  'keys',
  'there are none, although this gateway has admitted requests',
  'Unless all keys were revoked, restore a backup: see "Redis lost its data" in the runbook.',
);

/** @param hasAdmitted whether requests have been admitted since the start: they had keys, so there should be some */
export function keysCheck(keys: Keys, hasAdmitted: () => boolean): () => Promise<CheckResult[]> {
  let advice = '';
  const onFault = (cause: unknown): undefined => {
    advice = (cause instanceof Unavailable ? cause.shown : undefined) ?? 'See the findings about Redis.';
  };
  const both = [
    slowCheck('keys', () => readAll(keys), KEYS_KEPT_MS, onFault),
    slowCheck('list of keys', () => list(keys), LIST_KEPT_MS, onFault),
  ];
  return async () => {
    const total = await keys.count().catch(onFault);
    const found = total === undefined ? [undefined] : await Promise.all(both.map((check) => check(total)));
    if (!found.every((one) => one !== undefined)) return [unknown('keys', 'cannot be read', advice)];
    const all = found.flat();
    // If only the list was lost, the keys are still there, and the check of the list says so.
    return total === 0 && all.every(({ status }) => status === 'good') && hasAdmitted() ? [LOST] : all;
  };
}

/** Reads keys page by page, so that decisions run in between, until there are more bad keys than can be named. */
async function readAll(keys: Keys): Promise<Seen> {
  const bad: KeyEntry[] = [];
  let total = 0;
  let next: number | KeyCursor | undefined = 0;
  while (next !== undefined && bad.length <= MOST_NAMED) {
    const slice = await keys.list({ offset: next, limit: MOST_NAMED + 1 - bad.length, isWanted: hasFault });
    bad.push(...slice.keys);
    ({ total, next } = slice);
  }
  if (bad.length === 0) return { total, findings: [good('keys', `all ${total} can be read`)] };
  const faults = bad.flatMap(faultsOf);
  if (faults.length <= MOST_NAMED) return { total, findings: faults };
  const more = fault('keys', 'there are more faults than these', 'Fix these first.');
  return { total, findings: [...faults.slice(0, MOST_NAMED), more] };
}

/** Checks that the list has every key, because a key missing from the list is also missing from backups. */
async function list(keys: Keys): Promise<Seen> {
  const total = await keys.count();
  const { length } = await keys.unlisted();
  const about = 'list of keys';
  if (length === 0) return { total, findings: [good(about, 'has every key')] };
  const found = `lacks ${length} working ${length === 1 ? 'key' : 'keys'}, and so do backups`;
  return { total, findings: [fault(about, found, 'ctl keys reindex')] };
}

const hasFault = (key: KeyEntry): boolean => faultsOf(key).length > 0;

function faultsOf(key: KeyEntry): CheckResult[] {
  const advice =
    'It was written by hand or by another version of the gateway. Issue a new key, then run ctl keys revoke <id>.';
  const found = `${key.id} cannot be read: its requests get 503, except from gateways that have used it lately`;
  const unreadable = fault('keys', found, advice);
  return [...(key.isReadable ? [] : [unreadable]), ...malformedSecrets(key), ...invalidValues(key)];
}

const invalidValues = ({ id, isReadable, rejected = [] }: KeyEntry): CheckResult[] =>
  rejected.map((one) => {
    const { field, value, kept } = one;
    const instead = isReadable ? inForceInstead(one) : inForceInWords(kept);
    const isWithoutLimits = field === 'plan' && isPlanName(value);
    const why = isWithoutLimits ? 'but minute or day is missing' : 'which is not valid';
    const found = `${id}: ${field} is ${JSON.stringify(value.slice(0, 64))}, ${why}; ${instead}`;
    const typed = `HSET gateway:${field === 'tags' ? 'tags' : 'key'}:{${id}} ${isWithoutLimits ? 'minute … day' : field} …`;
    return fault(
      'keys',
      found,
      `${typed} or ${isWithoutLimits ? `ctl keys set ${id} --minute … --day …` : repairOf(field, id)}`,
    );
  });

/** The command that sets a field of a key. */
function repairOf(field: string, id: string): string {
  if (field === 'banned_until') return `ctl bans lift ${id}`;
  if (field === 'left' || field === 'refusals') return `ctl keys reset ${id}`;
  if (field === 'expires_at') return `ctl keys expire ${id} …`;
  return `ctl keys set ${id} --${field === 'tags' ? 'tag' : field} …`;
}

/** A malformed network never matches, so it admits nobody. */
function malformedSecrets({ id, record }: KeyEntry): CheckResult[] {
  return record.secrets.flatMap((secret) => {
    const networks = secret.networks.filter((network) => !isNetwork(network));
    const others = (secret.unreadable ?? []).filter((part) => part !== 'networks' || networks.length === 0);
    const set = `ctl keys secrets set ${id} ${secret.id}`;
    const found = networks.map((network) => {
      const shown = JSON.stringify(network.slice(0, 64));
      const what = `${id}: networks of secret ${secret.id} contains ${shown}, which is not a network and admits nobody`;
      return fault('keys', what, `${set} --networks …`);
    });
    if (others.length === 0) return found;
    const what = `${id}: ${others.join(', ')} of secret ${secret.id} cannot be read`;
    return [...found, fault('keys', what, `${set} … or ctl keys secrets revoke ${id} ${secret.id}`)];
  });
}
