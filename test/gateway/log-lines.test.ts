import { once } from 'node:events';
import http from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { type Logger, loggerTo, logInfoLine } from '../../shared/process/logger.ts';
import { miscounted } from '../support/counted-decisions.ts';
import { unexplained, watchFailures } from '../support/failures.ts';
import { post, send } from '../support/http.ts';
import type { LogLine } from '../support/log.ts';
import { logPipe } from '../support/log-pipe.ts';
import { Scrape } from '../support/metrics.ts';
import { startProcess } from '../support/process.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';
import { workersEnvironment } from '../support/workers.ts';

/** Tests log lines. Other tests also check, when they stop their services, that each 5xx is logged. */

const FIELDS: readonly [what: string, fields: object][] = [
  ['an ordinary request', { requestId: 'a-b', status: 200, code: undefined, path: '/v1/pets', durationMs: 1.5 }],
  ['no fields', {}],
  ['quotes and line ends', { path: '/v1/"pets"\\\n\r\t\u0000\u001f\u007f\u2028' }],
  ['non-ASCII characters', { path: '/ä/猫/🐈' }],
  ['numbers that JSON cannot represent', { durationMs: Number.NaN, bytes: Number.POSITIVE_INFINITY }],
  ['null and booleans', { code: null, isLate: false }],
];

function written(write: (logger: Logger) => void, level: 'info' | 'warn'): string[] {
  const lines: string[] = [];
  const logger = loggerTo({ write: (line) => void lines.push(line) }, { service: 'gateway', worker: undefined }, level);
  write(logger);
  return lines.map((line) => line.replace(/"time":"[^"]+"/, '"time":""'));
}

test.for(FIELDS)('the log line of %s equals the one that pino writes', ([, fields]) => {
  const own = written((logger) => logInfoLine(logger, fields, 'request'), 'info');
  expect(own).toEqual(written((logger) => logger.info(fields, 'request'), 'info'));
  expect(own).toHaveLength(1);
});

test('no info line is written if the log level is higher', () => {
  expect(written((logger) => logInfoLine(logger, {}, 'request'), 'warn')).toEqual([]);
});

const REQUESTS = thoroughly(1_000, 300);
const CONNECTIONS = 8;
/** How many bytes are read from the pipe every five milliseconds. */
const SLOW_BYTES = 500;
const ALL_BYTES = 65_536;
const LONG_PATH = `/v1/${'x'.repeat(8_000)}`;

test('several workers write whole lines to one pipe, however long the paths and however slow the reader', async () => {
  const pipe = await logPipe();
  pipe.read(SLOW_BYTES);
  const environment = await workersEnvironment();
  const { child, ended } = startProcess(process.execPath, ['gateway/main.ts'], environment, {
    stdio: ['ignore', pipe.end, 'pipe', 'ipc'],
  });
  const [{ gateway }] = (await once(child, 'message')) as [{ gateway: string }];
  const agent = new http.Agent({ maxSockets: CONNECTIONS });
  const path = (request: number) => (request % 10 === 0 ? LONG_PATH : '/v1/pets');
  await Promise.all(Array.from({ length: REQUESTS }, (_, request) => send(gateway + path(request), { agent })));
  agent.destroy();
  pipe.read(ALL_BYTES);
  child.kill('SIGINT');
  expect((await ended).code).toBe(0);
  await sleep(100);
  const lines = pipe.text().trim().split('\n');
  const logged = lines.map((line) => JSON.parse(line));
  expect(logged.filter(({ msg }) => msg === 'request')).toHaveLength(REQUESTS);
  expect(new Set(logged.map(({ worker }) => worker))).toEqual(new Set([undefined, 1, 2]));
});

const REX = { name: 'Rex', categoryId: 1 };
const named = (id: string) => ({ headers: { 'x-request-id': id, 'x-caller-id': 'a-caller' } });

test('a 503 on any listener is logged once, with its request id, status, code and cause', async () => {
  const stack = await startStack({ REDIS_URL: 'redis://127.0.0.1:1' });
  const asked = await send(`${stack.gateway}/v1/pets`, { key: createApiKey().apiKey, ...named('of-a-client') });
  expect(asked.headers).toMatchObject({ 'retry-after': '1', 'x-ratelimit-limit': '60' });
  expect((await send(`${stack.gateway}/v1/pets`)).status).toBe(401);
  const listed = await stack.admin('GET', '/keys');
  const database = new DatabaseSync(`${stack.directory}/store.db`);
  database.exec('BEGIN IMMEDIATE');
  await post(`${stack.core}/v1/pets`, REX, named('of-the-core'));
  database.close();
  const failed = {
    status: 503,
    code: 'unavailable',
    reason: expect.stringMatching(/\w/),
    durationMs: expect.any(Number),
  };
  expect(stack.log.filter(({ msg }) => msg === 'redis is unavailable')).toHaveLength(1);
  const linesOf = (log: typeof stack.log, id: unknown) => log.filter(({ requestId }) => requestId === id);
  expect(linesOf(stack.log, 'of-a-client')).toMatchObject([{ ...failed, msg: 'request', level: 40 }]);
  const operators = linesOf(stack.log, listed.headers['x-request-id']);
  expect(operators).toMatchObject([{ ...failed, msg: 'operator request', operation: 'listKeys', path: '/keys' }]);
  expect(linesOf(stack.coreLog, 'of-the-core')).toMatchObject([
    { ...failed, msg: 'request', operation: 'createPet', reason: 'database is locked', callerId: 'a-caller' },
  ]);
});

test('the core logs requests with the gateway’s field names, and successful probes only at debug level', async () => {
  const stack = await startStack();
  const key = await stack.issueKey();
  await send(`${stack.gateway}/v1/pets?limit=5`, { key, headers: { 'x-request-id': 'whole' } });
  await send(`${stack.core}/readyz`, named('a-probe'));
  const [ofGateway] = stack.log.filter(({ requestId }) => requestId === 'whole');
  const [ofCore] = stack.coreLog.filter(({ requestId }) => String(requestId).startsWith('whole.'));
  const { traceId, method, path, operation, status, keyId } = ofGateway as LogLine;
  expect(ofCore).toMatchObject({ level: 30, traceId, method, path, operation, status, callerId: keyId });
  expect(stack.coreLog.filter(({ requestId }) => requestId === 'a-probe')).toMatchObject([{ level: 20, status: 200 }]);
});

test("the log line of an operator's request contains no key, no matter where in the request one occurs", async () => {
  const stack = await startStack();
  const { apiKey } = createApiKey();
  await send(`${stack.adminUrl}/keys/${apiKey}`, { key: apiKey, headers: { 'x-request-id': apiKey } });
  expect(stack.log.filter(({ msg }) => msg === 'operator request')).not.toEqual([]);
  expect(JSON.stringify(stack.log)).not.toContain(apiKey.slice(16));
});

test('the log check detects a failure that is not logged, has no cause or is not counted', async () => {
  const failure = { status: 503, requestId: 'one' };
  const line = { level: 40, msg: 'request', ...failure, reason: 'away' };
  expect(unexplained([failure], [line])).toEqual([]);
  expect(unexplained([failure], [])).toEqual([failure]);
  expect(unexplained([failure], [{ ...line, reason: '' }])).toEqual([failure]);
  expect(unexplained([failure], [{ ...line, requestId: 'two' }])).toEqual([failure]);

  const stack = await startStack({ CORE_URL: 'http://127.0.0.1:1' });
  const key = await stack.issueKey();
  const check = watchFailures([stack.gateway], { lines: () => stack.log, counted: async () => 0 });
  await send(`${stack.gateway}/v1/pets`, { key });
  await expect(check()).rejects.toThrow();
});

test('the log check detects missing decisions, and requests that are counted twice or not at all', () => {
  const counted = (requests: number, shared: number, byRedis: number) =>
    miscounted(
      new Scrape(
        [
          `gateway_requests_total{status="200"} ${requests}`,
          `gateway_decisions_total{outcome="admitted",mode="shared"} ${shared}`,
          'gateway_requests_without_decision_total{reason="reference"} 2',
          `gateway_redis_batch_size_sum ${byRedis}`,
        ].join('\n'),
      ),
    );
  expect(counted(7, 5, 5)).toEqual([]);
  expect(counted(8, 5, 5)).toHaveLength(1);
  expect(counted(7, 5, 4)).toHaveLength(1);
});
