import { type CheckResult, fault, good, warning } from '../../check-result.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { isNetwork } from '../../limiter/networks.ts';
import { isFormer, PLAN_NAMES, type Plan, STORED_FIELDS, whenAbsent } from '../../limiter/plans.ts';
import { mostBanAfter } from '../../limiter/refusals.ts';
import type { PlanCache } from '../../stores/plan-cache.ts';
import type { KeyStore } from '../../stores/stores.ts';
import type { DoctorAnswer } from './answers.ts';
import { checkBackup } from './backup-notes.ts';
import { checkRequests, coresOf } from './dependencies.ts';
import type { AdminOperation } from './operation.ts';
import { shownRejected } from './rejected-values.ts';

const KEYS_LOOKED_AT = 100;

/**
 * Checks everything that the gateway depends on: Redis, the cores, the plan table. Changes nothing, so it is always
 * safe. A bad finding has the time of the first of the checks in a row that found it.
 */
export const checkAll: AdminOperation = async ({ deps }) => {
  const { checkDependencies, planCache, keys, traffic } = deps;
  const processes = traffic.processes();
  const found = [
    ...(await checkDependencies()),
    ...checkRequests(coresOf(processes), processes.length),
    ...checkPlans(planCache),
    ...(await checkKeys(keys)),
    ...(await checkOrder(keys)),
    ...(await checkBackup(deps)),
  ];
  return { status: 200, body: { findings: deps.findings.seen(found) } satisfies DoctorAnswer };
};

/** Checks the newest keys. Keys from a version before the first release have no secrets that this version can read. */
async function checkKeys(keys: KeyStore): Promise<CheckResult[]> {
  const newest = await keys.list({ offset: 0, limit: KEYS_LOOKED_AT, isWanted: () => true }).catch(() => undefined);
  if (newest === undefined) return [fault('keys', 'cannot be read', 'See what the doctor says of Redis.')];
  const [all, bad] = [newest.keys.length, newest.keys.filter(({ isReadable }) => !isReadable)];
  return [
    ...newest.keys.flatMap(checkNetworks),
    ...newest.keys.flatMap(checkValues),
    bad.length === 0
      ? good('keys', `the newest ${all} can be read`)
      : fault(
          'keys',
          `${bad.length} of the newest ${all} cannot be read, and are answered with 503: ${someOf(bad)}`,
          'A hand, or another version of the gateway, has written them: issue them anew, then ctl keys revoke <id>.',
        ),
  ];
}

/** A scan of all keys is too much for every look at this page. */
const ORDER_AGE_MS = 60_000;
const orders = new WeakMap<KeyStore, { readonly checkedAt: number; readonly unlisted: number }>();

/** Keys that no list has are in no backup either. */
async function checkOrder(keys: KeyStore): Promise<CheckResult[]> {
  const now = performance.now();
  let order = orders.get(keys);
  if (order === undefined || order.unlisted > 0 || now - order.checkedAt > ORDER_AGE_MS) {
    const unlisted = await keys.unlisted().catch(() => undefined);
    // A store that is away has its own finding.
    if (unlisted === undefined) return [];
    order = { checkedAt: now, unlisted: unlisted.length };
    orders.set(keys, order);
  }
  if (order.unlisted === 0) return [good('list of keys', 'has every key')];
  const found = `${order.unlisted} keys work and are missing from it, and so from every backup`;
  return [fault('list of keys', found, 'ctl keys reindex')];
}

/** Values typed by hand that are not valid. */
const checkValues = ({ id, rejected = [] }: KeyEntry): CheckResult[] =>
  rejected.map(({ field, value, kept }) =>
    fault(
      'keys',
      `${id}: ${field} is ${JSON.stringify(value.slice(0, 64))}, which is not valid; ${kept ?? 'nothing'} stays in force`,
      `HSET gateway:key:{${id}} ${field} … or ctl keys set ${id} --${field.replaceAll('_', '-')} …`,
    ),
  );

/** A malformed network lets nobody in. */
function checkNetworks({ id, record }: KeyEntry): CheckResult[] {
  return record.secrets.flatMap((secret) =>
    secret.networks
      .filter((network) => !isNetwork(network))
      .map((network) =>
        fault(
          'keys',
          `${id}: networks of secret ${secret.id} has ${JSON.stringify(network.slice(0, 64))}, which is none: nobody is let in by it`,
          `ctl keys secrets set ${id} ${secret.id} --networks …`,
        ),
      ),
  );
}

const someOf = (keys: readonly KeyEntry[]): string =>
  `${keys
    .slice(0, 3)
    .map(({ id }) => id)
    .join(', ')}${keys.length > 3 ? ', …' : ''}`;

function checkPlans({ rejected, isReadable, table }: PlanCache): CheckResult[] {
  if (!isReadable)
    return [
      fault('plan table', 'cannot be read; the last good one stays', 'TYPE gateway:plans must be hash; see the log.'),
    ];
  const bad = shownRejected(rejected).map(({ field, value, kept }) =>
    isFormer(field)
      ? ofFormerRule(field)
      : fault('plan table', `${field} is ${value ?? 'missing'}; ${kept ?? 'nothing'} stays in force`, adviceFor(field)),
  );
  const patient = PLAN_NAMES.flatMap((name) => checkBanAfter(name, table[name]));
  const shadows = PLAN_NAMES.filter((name) => table[name].mode === 'shadow').map((name) =>
    warning('plan table', `${name} is in shadow mode: it refuses nothing`, `ctl plans set ${name} --mode enforce`),
  );
  const found = [...bad, ...patient, ...shadows];
  return found.length === 0 ? [good('plan table', 'every value is in force')] : found;
}

function ofFormerRule(field: string): CheckResult {
  const [plan = ''] = field.split('.');
  return warning(
    'plan table',
    `${field} belongs to a rule that is gone: ${plan}.ban_after is ignored, and ${whenAbsent('ban_after')} is in force`,
    `ctl plans set ${plan} --ban-after none`,
  );
}

function checkBanAfter(name: string, { minute, ban_after }: Plan): CheckResult[] {
  if (minute === undefined || ban_after === undefined || ban_after <= mostBanAfter(minute)) return [];
  return [
    warning(
      'plan table',
      `${name}.ban_after is ${ban_after}, over eight times the minute limit: bursts once a minute can ban a key`,
      `ctl plans set ${name} --ban-after none`,
    ),
  ];
}

function adviceFor(field: string): string {
  if (!STORED_FIELDS.includes(field)) return `No plan has it: HDEL gateway:plans ${field}`;
  const [plan = '', name = ''] = field.split('.');
  return `ctl plans set ${plan} --${name.replaceAll('_', '-')} …`;
}
