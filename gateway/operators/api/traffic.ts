import type { Family } from '../../../shared/process/counts.ts';
import { type CheckResult, fault, good, isBad, warning } from '../../check-result.ts';
import { PLAN_NAMES, type RejectedValue } from '../../limiter/plans.ts';
import { DEADLINES_MISSED, REDIS_CALL } from '../../stores/redis/target.ts';
import {
  bucketsOf,
  type LatelyAnswered,
  type ProcessState,
  quantile,
  type SeenCore,
  seriesOf,
  totalsOf,
} from '../../telemetry/state.ts';
import { type CoreView, MinutesAnswer, type RedisMode, type RedisView, TrafficAnswer } from './answers.ts';
import { operation } from './operation.ts';

/** Reports the traffic and the state of the gateway, as the processes that serve clients see them. */

/**
 * Reports clients' requests since this gateway started, and the state of the gateway, for all workers together. The
 * call is cheap enough to poll every second.
 */
export const showTraffic = operation({ answer: TrafficAnswer }, async ({ deps }) => {
  const { traffic, planCache, redisMode, health } = deps;
  await health.watch();
  const [counted, processes] = [traffic.source.counted(), traffic.source.processes()];
  const { totals, plans } = totalsOf(counted);
  return {
    since: traffic.since.toISOString(),
    mode: traffic.mode.isLocal ? ('local' as const) : ('shared' as const),
    modeSince: traffic.mode.since.toISOString(),
    health: health.bad()[0],
    findings: health.bad(),
    workers: traffic.source.workers?.(),
    processes: processes.length,
    cores: coresOf(processes),
    redis: redisOf(processes, counted, redisMode),
    totals,
    plans,
    planTable: {
      version: planCache.version,
      changedAt: planCache.changedAt.toISOString(),
      rejectedValues: planCache.rejected.length,
      rejected: shownRejected(planCache.rejected),
      shadowPlans: PLAN_NAMES.filter((plan) => planCache.table[plan].mode === 'shadow'),
    },
  };
});

/** Reports the last hour by minute, oldest first. The last minute is still in progress. */
export const showMinutes = operation({ answer: MinutesAnswer }, async ({ deps: { traffic } }) => ({
  since: traffic.since.toISOString(),
  minutes: traffic.minutes(),
}));

/** The states, worst first. */
const STATES: readonly CoreView['state'][] = ['out', 'silent', 'draining', 'up', 'unproven'];

/** Every core that any of the processes uses, in the order of CORE_URL. */
export function coresOf(processes: readonly ProcessState[]): CoreView[] {
  const seen = processes.flatMap(({ cores }) => cores.map((core) => ({ ...core, state: stateOf(core, cores) })));
  return [...Map.groupBy(seen, ({ origin }) => origin).values()].map((all) => {
    const state = STATES.find((one) => all.some((core) => core.state === one)) ?? 'up';
    const those = all.filter((core) => core.state === state);
    return {
      origin: all[0]?.origin ?? '',
      state,
      seenBy: those.length,
      since: timeOf(Math.min(...those.map(({ since }) => since))),
      reason: those[0]?.reason,
      inFlight: sum(all.map(({ inFlight }) => inFlight)),
      waiting: sum(all.map(({ queued }) => queued)),
      limit: sum(all.map(({ limit }) => limit)),
      lastAnswer: newest(all.map(({ lastAnswer }) => lastAnswer)),
      lastFault: newest(all.map(({ lastFault }) => lastFault)),
    };
  });
}

/** A single core is not probed, so only a response shows that it is up. */
function stateOf(core: SeenCore, all: readonly SeenCore[]): CoreView['state'] {
  if (core.isDraining) return 'draining';
  if (!core.ready) return 'out';
  if (core.isSilent) return 'silent';
  return all.length === 1 && core.lastAnswer === undefined ? 'unproven' : 'up';
}

/** Reports how clients' requests fare at each core, which a probe cannot show. */
export const checkRequests = (cores: readonly CoreView[], processes: number): CheckResult[] =>
  cores.map((core) => {
    const { origin, state, seenBy, reason, inFlight, waiting, limit, lastAnswer } = core;
    const about = `requests to core ${origin}`;
    const where = seenBy === processes ? '' : ` in ${seenBy} of ${processes} workers`;
    const load = `${inFlight} of at most ${limit} in progress, ${waiting} waiting`;
    const last = lastAnswer === undefined ? 'no response yet' : `the last response took ${lastAnswer.ms.toFixed(0)} ms`;
    if (state === 'out')
      return warning(about, `it is not in use${where}: ${reason}`, 'It gets requests only if no other core is ready.');
    if (state === 'silent')
      return warning(about, `its requests go to other cores${where}: ${load}`, 'Check its CPU and its database.');
    if (state === 'draining') return good(about, `it was removed from CORE_URL; ${inFlight} in progress`);
    return good(about, `${load}; ${last}`);
  });

/** GatewayErrorRatioHigh is raised above this share. A few failures at night are no fault. */
const FAILED_SHARE = 0.02;
const ENOUGH_FAILURES = 10;

/** A 5xx that is not the client's fault, as in GatewayErrorRatioHigh: 505 refuses its HTTP version. */
const isFailure = (status: string): boolean => Number(status) >= 500 && status !== '505';

/** Reports that many of the last requests to this gateway failed, whatever the cause. */
export function checkFailures({ seconds, statuses }: LatelyAnswered): CheckResult[] {
  const about = 'requests to this gateway';
  const each = [...statuses].filter(([status, count]) => isFailure(status) && count > 0);
  const [failed, total] = [sum(each.map(([, count]) => count)), sum([...statuses.values()])];
  const found = `${failed} of ${total} in the last ${seconds} s got 5xx`;
  if (failed < ENOUGH_FAILURES || failed <= FAILED_SHARE * total) return [good(about, found)];
  const named = each.toSorted(([, a], [, b]) => b - a).map(([status, count]) => `${count} × ${status}`);
  const advice = 'ctl requests --status 5xx --why shows the causes. See GatewayErrorRatioHigh in the runbook.';
  return [fault(about, `${found}: ${named.join(', ')}`, advice)];
}

/** The errors with which Redis refuses decisions, and what to do about them. */
const REFUSALS = [
  [/NOPERM|user executing the script/, 'Grant the Redis user the rights in deploy/redis/users.acl.'],
  [/READONLY/, 'Set REDIS_URL to the primary.'],
  [/OOM/, 'Raise maxmemory.'],
] as const;

/** Reports that workers get no decisions from Redis, although the Redis checks found no fault. */
export function checkDecisions(processes: readonly ProcessState[], redis: readonly CheckResult[]): CheckResult[] {
  const [reason] = processes.flatMap((one) => one.redis?.outage ?? []);
  if (reason === undefined || redis.some(isBad)) return [];
  const [, advice] = REFUSALS.find(([error]) => error.test(reason)) ?? [];
  const seeAlso = 'See GatewayDecisionsLocal in the runbook.';
  return [
    fault(
      'decisions',
      `are made without Redis; keys not seen before get 503. ${reason}`,
      advice ? `${advice} ${seeAlso}` : seeAlso,
    ),
  ];
}

/** GatewayCertificateExpires is raised this long before the expiry. */
const EXPIRES_SOON_MS = 14 * 86_400_000;

/** Reports when the certificate that clients see expires, and why its files are not used. Without TLS, finds nothing. */
export function checkCertificate(processes: readonly ProcessState[]): CheckResult[] {
  const about = 'certificate';
  const seen = processes.flatMap(({ certificate }) => certificate ?? []);
  if (seen.length === 0) return [];
  const begin = 1_000 * Math.max(...seen.map(({ beginsAt }) => beginsAt));
  const end = 1_000 * Math.min(...seen.map(({ expiresAt }) => expiresAt));
  const [reason] = seen.flatMap(({ rejected }) => rejected ?? []);
  const unlessRenewed = 'Replace the files of TLS_CERT_FILE and TLS_KEY_FILE. No restart is needed.';
  const ofPeriod = (): CheckResult => {
    const now = Date.now();
    if (begin > now) return fault(about, `is not valid before ${timeOf(begin)}`, unlessRenewed);
    if (end <= now) return fault(about, `expired on ${timeOf(end)}`, unlessRenewed);
    const expiry = `expires on ${timeOf(end)}`;
    return end - now < EXPIRES_SOON_MS ? warning(about, expiry, unlessRenewed) : good(about, expiry);
  };
  if (reason === undefined) return [ofPeriod()];
  const advice =
    'Fix that file. A gateway that starts now exits with this error, or uses a certificate that is not valid.';
  return [fault(about, `${reason}; the last good files stay in use`, advice), ofPeriod()];
}

function redisOf(processes: readonly ProcessState[], counted: readonly Family[], mode: RedisMode): RedisView {
  const seen = processes.flatMap(({ redis }) => redis ?? []);
  const lost = seen.filter(({ isConnected }) => !isConnected).map(({ since }) => since);
  const since = lost.length > 0 ? Math.min(...lost) : Math.max(...seen.map((one) => one.since));
  return {
    mode,
    connected: seen.length - lost.length,
    since: seen.length === 0 ? undefined : timeOf(since),
    lastCall: newest(seen.map(({ lastCall }) => lastCall)),
    p99: quantile(bucketsOf(counted, REDIS_CALL), 0.99),
    missedDeadlines: sum(seriesOf(counted, DEADLINES_MISSED).map(({ value }) => value)),
  };
}

const timeOf = (ms: number): string => new Date(ms).toISOString();

const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);

/** The newest of these events, with its time as a string; undefined if there are none. */
function newest<T extends { readonly at: number }>(all: readonly (T | undefined)[]) {
  const [event] = all.filter((one) => one !== undefined).toSorted((a, b) => b.at - a.at);
  return event && { ...event, at: timeOf(event.at) };
}

/** The maximum number of values shown, and of characters in each. Edits by hand can put anything into the table. */
const MOST_REJECTED = 100;
const MOST_CHARACTERS = 100;

/** The values in the plan table that are not in force, shortened to fit in the response. */
export const shownRejected = (rejected: readonly RejectedValue[]): RejectedValue[] =>
  rejected.slice(0, MOST_REJECTED).map(({ field, value, kept }) => ({
    field: field.slice(0, MOST_CHARACTERS),
    value: value?.slice(0, MOST_CHARACTERS),
    kept,
  }));
