import { openSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { Counter, Histogram, Registry } from '@prometheus-io/client';
import { pino } from 'pino';
import { DAY, MINUTE } from '../../gateway/limiter/clock.ts';
import { type Credential, parseApiKey } from '../../gateway/limiter/credential.ts';
import type { LimitStatus } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { canonicalRequest } from '../../gateway/pipeline/canonical-request.ts';
import { limitHeaders } from '../../gateway/pipeline/client-headers.ts';
import type { Exchange } from '../../gateway/pipeline/exchange.ts';
import { ROUTES } from '../../gateway/routes.ts';
import { connectRedis } from '../../gateway/stores/redis/connection.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { Traffic } from '../../gateway/telemetry/request-metrics.ts';
import { CoreCounts } from '../../gateway/upstream/core-counts.ts';
import { Lane } from '../../gateway/upstream/lane.ts';
import { requestHeaders, responseHeaders } from '../../gateway/upstream/upstream-headers.ts';
import { traceHeaders, traceOf } from '../../shared/http/trace.ts';
import { createLogger } from '../../shared/process/logger.ts';
import { NOT_STREAMED } from '../support/line.ts';
import { median } from '../support/statistics.ts';
import { listsOf } from './load/asks.ts';
import { keepInFlight } from './load/in-flight.ts';
import { runWrk } from './load/wrk.ts';
import { startNode } from './machine/processes.ts';
import { installPrograms } from './machine/programs.ts';
import { describeMachine, usageOf } from './machine/usage.ts';
import { timeEach } from './results/timing.ts';
import { startGateway } from './setup/gateway.ts';
import { issueKeys } from './setup/keys.ts';
import { setStage } from './setup/stage.ts';

/**
 * What one admitted GET costs the gateway's process, step by step, in µs of CPU: steps that only compute are timed in a
 * loop, hops are measured with 32 requests in flight, and the whole gateway beside them, so that the rest shows too.
 *
 *     node test/bench/steps.ts
 */

const IN_FLIGHT = 32;
const ROUNDS = 7;
const ROUND_SECONDS = 1;

installPrograms();
const stage = await setStage();
const { hot } = await issueKeys(stage.client);
const credential = parseApiKey(hot) as Credential;
const rawHeaders = ['Host', '127.0.0.1:8080', 'Authorization', `Bearer ${hot}`];
const request = {
  method: 'GET',
  url: '/v1/pets',
  httpVersion: '1.1',
  headers: { host: '127.0.0.1:8080', authorization: `Bearer ${hot}` },
  rawHeaders,
} as unknown as IncomingMessage;
const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const traced = { headers: { traceparent } } as unknown as IncomingMessage;
const limitStatus: LimitStatus = {
  outcome: 'admitted',
  now: 1_795_236_994_000_000,
  buckets: [
    { name: 'minute', limit: 300, window: MINUTE, tokens: 299, fraction: 1_234 },
    { name: 'day', limit: 10_000, window: DAY, tokens: 9_999, fraction: 5_678 },
  ],
  bannedUntil: 0,
};
const fromCore = ['Content-Type', 'application/json', 'Content-Length', '1234', 'X-Request-Id', 'id', 'Date', 'now'];
const log = pino(pino.destination({ fd: openSync('/dev/null', 'w'), sync: false, minLength: 4_096 }));
const line = {
  requestId: '1d9d2e71-70ef-42a0-853b-af79a5ee6eab',
  method: 'GET',
  path: '/v1/pets',
  operation: 'listPets',
  status: 200,
  keyId: credential.id,
  plan: 'pro',
  outcome: 'admitted',
  address: '127.0.0.1',
  durationMs: 1.234,
};

const traffic = new Traffic(ROUTES.map(({ operation }) => operation));
const coreCounts = new CoreCounts(stage.coreUrl);
const answered = {
  route: ROUTES[0],
  plan: 'pro',
  outcome: 'admitted',
  mode: undefined,
  limitStatus,
  status: 200,
  startedAt: performance.now(),
  decidedAt: performance.now(),
} as unknown as Exchange;

const registers = [new Registry()];
const counter = (name: string, labelNames: string[]) => new Counter({ name, help: name, labelNames, registers });
const histogram = (name: string, labelNames: string[]) => new Histogram({ name, help: name, labelNames, registers });
const byLibrary = {
  requests: counter('requests', ['operation', 'status', 'plan']),
  decisions: counter('decisions', ['outcome', 'plan', 'mode']),
  requestSeconds: histogram('request_seconds', ['operation']),
  decisionSeconds: histogram('decision_seconds', []),
  coreSeconds: histogram('core_seconds', ['core']),
};

const computed = timeEach({
  'canonical request': () => canonicalRequest(request),
  'key: form, CRC-32, SHA-256': () => parseApiKey(hot),
  'limit headers': () => limitHeaders(limitStatus, true),
  'headers to the core and back': () => [requestHeaders(rawHeaders, []), responseHeaders(fromCore, 200)],
  'access log line': () => log.info(line, 'request'),
  counters: () => {
    traffic.answered(answered);
    coreCounts.answered(1.2);
  },
  'counters, by the metrics library': () => {
    const seconds = (performance.now() - answered.startedAt) / 1_000;
    byLibrary.requests.inc({ operation: 'listPets', status: '200', plan: 'pro' });
    byLibrary.requestSeconds.observe({ operation: 'listPets' }, seconds);
    byLibrary.decisions.inc({ outcome: 'admitted', plan: 'pro', mode: 'shared' });
    byLibrary.decisionSeconds.observe(seconds);
    byLibrary.coreSeconds.observe({ core: stage.coreUrl }, seconds);
  },
  'trace, begun here': () => traceHeaders(traceOf(request)),
  'trace, continued': () => traceHeaders(traceOf(traced)),
});

/** µs of this process's CPU for one call of many, so many of them in flight. */
async function inFlight(call: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  const calls = await keepInFlight(IN_FLIGHT, ROUND_SECONDS * 1_000, call);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / calls;
}

/** µs of a server's CPU for one request of many. */
async function served(server: { readonly pid: number; readonly url: string }): Promise<number> {
  const before = usageOf(server.pid).cpuMicroseconds;
  const load = { url: server.url, connections: IN_FLIGHT, seconds: ROUND_SECONDS, asks: listsOf([hot]) };
  const { requests } = await runWrk(load);
  return (usageOf(server.pid).cpuMicroseconds - before) / requests;
}

const limiter = new RedisLimiter(
  await connectRedis(stage.redisUrl, 5_000, createLogger('bench', 'warn')),
  () => DEFAULT_PLANS,
);
const core = new Lane(stage.coreUrl, { connectTimeoutMs: 1_000, keepAliveMs: 4_000 });
const id = 'id-of-the-bench';
const list = {
  method: 'GET',
  target: '/v1/pets',
  headers: ['X-Request-Id', id],
  body: undefined,
  id,
  hasGivenId: false,
  client: '',
};

function askCore(): Promise<unknown> {
  const { promise, resolve: answered, reject: failed } = Promise.withResolvers<unknown>();
  core.ask({ ...NOT_STREAMED, request: list, isWanted: true, answered, failed }, performance.now());
  return promise;
}

const bare = await startNode('bare-node', join(import.meta.dirname, 'peers/bare-node.ts'), {});
const gateway = await startGateway('gateway', stage, { REDIS_URL: stage.redisUrl });

const hops: Record<string, () => Promise<number>> = {
  'node:http, request in and answer out': () => served({ pid: bare.pid, url: bare.urls['bare-node'] ?? '' }),
  'decision, asked of Redis': () => inFlight(() => limiter.decide(credential)),
  'core, asked on pipelined connections': () => inFlight(askCore),
  'the gateway as a whole': () => served({ pid: gateway.pid, url: gateway.urls.gateway ?? '' }),
};
const measured = new Map<string, number[]>(Object.keys(hops).map((name) => [name, []]));
for (const measure of Object.values(hops)) await measure();
for (let round = 0; round < ROUNDS; round++)
  for (const [name, measure] of Object.entries(hops)) measured.get(name)?.push(await measure());

const figures = new Map([...measured].map(([name, values]) => [name, median(values)]));
const whole = figures.get('the gateway as a whole') as number;
figures.delete('the gateway as a whole');
for (const [name, { µs }] of computed) figures.set(name, µs);
const rest = whole - [...figures.values()].reduce((total, µs) => total + µs, 0);
const rows: [string, number][] = [...figures, ['the rest: promises, timers, garbage', rest], ['the whole', whole]];
process.stdout.write(`${describeMachine()}\n\n`);
for (const [name, µs] of rows) process.stdout.write(`${name.padEnd(40)} ${µs.toFixed(1).padStart(6)} µs\n`);
process.exit(0);
