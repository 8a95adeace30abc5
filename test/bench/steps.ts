import { openSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Counter, Histogram, Registry } from '@prometheus-io/client';
import { pino } from 'pino';
import { DAY, MINUTE } from '../../gateway/limiter/bucket.ts';
import { createApiKey, parseApiKey } from '../../gateway/limiter/credential.ts';
import type { LimitStatus } from '../../gateway/limiter/limiter.ts';
import { canonicalRequest } from '../../gateway/pipeline/client-http.ts';
import { ROUTES } from '../../gateway/routes.ts';
import type { Exchange } from '../../gateway/telemetry/exchange.ts';
import { Traffic } from '../../gateway/telemetry/request-metrics.ts';
import { CoreCounts } from '../../gateway/upstream/core.ts';
import { requestHeaders, responseHeaders } from '../../gateway/upstream/headers.ts';
import { addTrace, traceOf } from '../../shared/http/request-head.ts';
import { loggerTo, logInfoLine } from '../../shared/process/logger.ts';
import { limitHeaders } from '../support/limit-headers.ts';
import { describeMachine } from './machine/usage.ts';
import { timeEach } from './results/timing.ts';

/**
 * Measures the steps of an admitted GET that only use CPU, in µs, each in a loop. `profile.ts` shows where all of the
 * time is spent.
 *
 *     node test/bench/steps.ts
 */

const CORE = 'http://127.0.0.1:8081';
const { apiKey: hot, credential } = createApiKey();
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
const nowhere = pino.destination({ fd: openSync('/dev/null', 'w'), sync: false, minLength: 4_096 });
const log = loggerTo(nowhere, { service: 'gateway' }, 'info');
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
const coreCounts = new CoreCounts(CORE);
const answered = {
  request,
  client: '127.0.0.1',
  peer: '127.0.0.1',
  route: ROUTES[0],
  plan: 'pro',
  outcome: 'admitted',
  mode: undefined,
  limitStatus,
  status: 200,
  startedAt: performance.now(),
  decidedAt: performance.now(),
  endedAt: performance.now() + 1,
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
  'headers to the core and back': () => [requestHeaders(rawHeaders), responseHeaders(fromCore, 200)],
  'access log line': () => logInfoLine(log, line, 'request'),
  "access log line, by pino's own call": () => log.info(line, 'request'),
  counters: () => {
    traffic.answered(answered);
    coreCounts.answered(1.2);
  },
  'counters, by the metrics library': () => {
    const seconds = (answered.endedAt - answered.startedAt) / 1_000;
    byLibrary.requests.inc({ operation: 'listPets', status: '200', plan: 'pro' });
    byLibrary.requestSeconds.observe({ operation: 'listPets' }, seconds);
    byLibrary.decisions.inc({ outcome: 'admitted', plan: 'pro', mode: 'shared' });
    byLibrary.decisionSeconds.observe(seconds);
    byLibrary.coreSeconds.observe({ core: CORE }, seconds);
  },
  'trace, begun here': () => addTrace([], traceOf(request)),
  'trace, continued': () => addTrace([], traceOf(traced)),
});

process.stdout.write(`${describeMachine()}\n\n`);
for (const [name, text] of computed) process.stdout.write(`${name.padEnd(40)} ${text}\n`);
process.exit(0);
