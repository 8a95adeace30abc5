import { type CheckResult, fault, good, unknown, warning } from '../../check-result.ts';
import { isFormer, PLAN_NAMES, type Plan, STORED_FIELDS, whenAbsent } from '../../limiter/plans.ts';
import { mostBanAfter } from '../../limiter/refusals.ts';
import type { PlanCache } from '../../stores/plan-cache.ts';
import type { WorkersState } from '../../telemetry/state.ts';
import type { DoctorAnswer } from './answers.ts';
import { checkBackup } from './backup-notes.ts';
import { checkKeys } from './check-keys.ts';
import { checkRequests, coresOf } from './dependencies.ts';
import { answered } from './health.ts';
import type { AdminOperation } from './operation.ts';
import { shownRejected } from './rejected-values.ts';

/**
 * Checks everything that the gateway depends on. It changes nothing, so it is always safe. A bad finding has the time
 * of the first check in a row that found it.
 */
export const checkAll: AdminOperation = async ({ deps }) => {
  const { checkDependencies, planCache, keys, traffic } = deps;
  const processes = traffic.source.processes();
  const asked = [
    ...Object.entries(checkDependencies).map(([about, look]) => answered(about, look)),
    answered('requests to cores', () => checkRequests(coresOf(processes), processes.length)),
    answered('workers', () => checkWorkers(traffic.source.workers?.())),
    answered('plan table', () => checkPlans(planCache)),
    answered('keys', () => checkKeys(keys)),
    answered('backup', () => checkBackup(deps)),
  ];
  const findings = deps.findings.seen((await Promise.all(asked)).flat(), deps.health.seen);
  return { status: 200, body: { findings } satisfies DoctorAnswer };
};

/** Workers report twice a second. */
const SILENT_MS = 1_500;

/** A worker that sends nothing may hang. Its primary then kills it. */
export const checkWorkers = (workers: WorkersState | undefined): CheckResult[] =>
  (workers?.each ?? []).flatMap(({ worker, pid, silentMs }) => {
    const about = `worker ${worker}`;
    if (pid === undefined) return [fault(about, 'does not serve', 'It is being restarted. The log says why it ended.')];
    if (silentMs < SILENT_MS) return [];
    return [
      unknown(
        about,
        `has not reported for ${(silentMs / 1_000).toFixed(1)} s`,
        'It is replaced unless it reports again.',
      ),
    ];
  });

function checkPlans({ rejected, isReadable, isMissing, lastGood, table }: PlanCache): CheckResult[] {
  const stays = lastGood === undefined ? 'clients get 503' : 'the last good one stays';
  if (!isReadable && !isMissing)
    return [
      fault(
        'plan table',
        `cannot be read; ${stays}`,
        'If it is not a hash, run DEL gateway:plans. The log shows the error.',
      ),
    ];
  if (isMissing && lastGood !== undefined)
    return [fault('plan table', `is missing; ${stays}`, 'It is written back within a second; see the log.')];
  const typed = lastGood === undefined ? rejected.filter(({ value }) => value !== undefined) : rejected;
  const bad = shownRejected(typed).map(({ field, value, kept }) =>
    isFormer(field)
      ? ofFormerRule(field)
      : fault('plan table', `${field} is ${value ?? 'missing'}; ${kept ?? 'nothing'} stays in force`, adviceFor(field)),
  );
  const patient = PLAN_NAMES.flatMap((name) => checkBanAfter(name, table[name]));
  const shadows = PLAN_NAMES.filter((name) => table[name].mode === 'shadow').map((name) =>
    warning('plan table', `${name} is in shadow mode: it refuses nothing`, `ctl plans set ${name} --mode enforce`),
  );
  if (lastGood === undefined) {
    const advice = 'Restore a backup with ctl restore, or set all of its values with HSET.';
    return [fault('plan table', `is missing or incomplete; ${stays}`, advice), ...bad];
  }
  const found = [...bad, ...patient, ...shadows];
  return found.length === 0 ? [good('plan table', 'every value is in force')] : found;
}

function ofFormerRule(field: string): CheckResult {
  const [plan = ''] = field.split('.');
  return warning(
    'plan table',
    `${field} belongs to a rule that no longer exists: ${plan}.ban_after is ignored, and ${whenAbsent('ban_after')} is in force`,
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
  if (!STORED_FIELDS.includes(field)) return `No plan has this field. Run: HDEL gateway:plans ${field}`;
  const [plan = '', name = ''] = field.split('.');
  return `ctl plans set ${plan} --${name.replaceAll('_', '-')} …`;
}
