import http from 'node:http';
import { expect, test } from 'vitest';
import { faultyCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { startService } from '../support/process.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';

test('on SIGTERM requests in flight finish, their answers close the connection, and the exit status is 0', async () => {
  const DATA_DIR = await temporaryFolder();
  const arrived = Promise.withResolvers<() => void>();
  const core = await faultyCore((socket) =>
    arrived.resolve(
      () => void socket.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]'),
    ),
  );
  const environment = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN: 'token-of-the-tests', CORE_URL: core, DATA_DIR };
  const gateway = await startService('gateway/main.ts', environment);
  const { gateway: url, admin } = gateway.addresses;
  const created = await send(`${admin}/keys`, {
    method: 'POST',
    key: 'token-of-the-tests',
    headers: { 'content-type': 'application/json' },
    body: '{"name":"a","plan":"free"}',
  });
  const { key } = created.json as { key: string };

  const agent = new http.Agent({ keepAlive: true });
  const inFlight = send(`${url}/v1/pets`, { key, agent });
  const answer = await arrived.promise;
  gateway.child.kill('SIGTERM');
  await expect.poll(async () => (await send(`${admin}/readyz`)).status).toBe(503);
  expect((await send(`${url}/v1/pets`)).headers.connection).toBe('close');
  await expect.poll(() => send(`${url}/v1/pets`).catch(({ code }) => code)).toBe('ECONNREFUSED');
  answer();
  expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
  const { code, out } = await gateway.ended;
  expect(code).toBe(0);
  expect(out).toMatch(/"status":200,/);
  agent.destroy();
});

test('a stop does not wait for an idle connection', TIMED, async () => {
  const stack = await startStack();
  const agent = new http.Agent({ keepAlive: true });
  await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey(), agent });
  const before = performance.now();
  await stack.stop();
  expect(performance.now() - before).toBeLessThan(1_000);
  agent.destroy();
});
