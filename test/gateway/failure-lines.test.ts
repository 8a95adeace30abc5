import { DatabaseSync } from 'node:sqlite';
import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { miscounted } from '../support/counted-decisions.ts';
import { unexplained, watchFailures } from '../support/failures.ts';
import { post, send } from '../support/http.ts';
import type { LogLine } from '../support/log.ts';
import { Scrape } from '../support/metrics.ts';
import { startStack } from '../support/stack.ts';

/** Other tests also check that each 5xx has a log line, when they stop their services. */

const REX = { name: 'Rex', categoryId: 1 };
const named = (id: string) => ({ headers: { 'x-request-id': id, 'x-caller-id': 'a-caller' } });

test('a 503 on any listener leaves one line with its request id, status, code and cause', async () => {
  const stack = await startStack({ REDIS_URL: 'redis://127.0.0.1:1' });
  await send(`${stack.gateway}/v1/pets`, { key: createApiKey().apiKey, ...named('of-a-client') });
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

test("the log line of an operator's request holds no key, wherever one is put", async () => {
  const stack = await startStack();
  const { apiKey } = createApiKey();
  await send(`${stack.adminUrl}/keys/${apiKey}`, { key: apiKey, headers: { 'x-request-id': apiKey } });
  expect(stack.log.filter(({ msg }) => msg === 'operator request')).not.toEqual([]);
  expect(JSON.stringify(stack.log)).not.toContain(apiKey.slice(16));
});

test('a failure without a log line, without a cause in it, or without a count is detected', async () => {
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

test('decisions that were not made, and requests counted twice or not at all, are detected', () => {
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
