import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { waitingCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { parsedLines } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';
import { launchWorkers, workersEnvironment } from '../support/workers.ts';

const WITHOUT_REDIS = { WORKERS: '1', REDIS_URL: '' };

test('on SIGTERM, requests in flight finish, their connections close, and the exit status is 0', async () => {
  const core = await waitingCore();
  const gateway = await launchWorkers({ ...WITHOUT_REDIS, CORE_URL: core.url });
  const { gateway: url, adminUrl } = gateway;
  const key = await gateway.issueKey();

  const agent = new http.Agent({ keepAlive: true });
  const inFlight = send(`${url}/v1/pets`, { key, agent });
  const answer = await core.arrived;
  gateway.child.kill('SIGTERM');
  await expect.poll(async () => (await send(`${adminUrl}/readyz`)).status).toBe(503);
  expect((await send(`${url}/v1/pets`)).headers.connection).toBe('close');
  await expect.poll(() => send(`${url}/v1/pets`).catch(({ code }) => code)).toBe('ECONNREFUSED');
  answer();
  expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
  const { code, out } = await gateway.ended;
  expect(code).toBe(0);
  expect(out).toMatch(/"status":200,/);
  agent.destroy();
});

test("on SIGTERM, the gateway drains as soon as a worker serves, even before the operators' listener is open", async () => {
  const [DATA_DIR, PORT, core] = [await temporaryFolder(), String(await freePort()), await waitingCore()];
  const environment = await workersEnvironment({ ...WITHOUT_REDIS, PORT, CORE_URL: core.url, DATA_DIR });
  const before = await launchWorkers(environment);
  const key = await before.issueKey();
  before.child.kill('SIGINT');
  await before.ended;

  // Reading the operators' token blocks until it is written.
  execFileSync('mkfifo', [join(DATA_DIR, 'admin-token')]);
  const { child, out, ended } = startProcess(process.execPath, ['gateway/main.ts'], {
    ...environment,
    ADMIN_TOKEN: '',
  });
  await expect.poll(out).toContain('worker is serving');
  const inFlight = send(`http://127.0.0.1:${PORT}/v1/pets`, { key });
  const answer = await core.arrived;
  child.kill('SIGTERM');
  const refused = () => send(`http://127.0.0.1:${PORT}/livez`).then(String, ({ code }) => code);
  await expect.poll(refused).toBe('ECONNREFUSED');
  await writeFile(join(DATA_DIR, 'admin-token'), ADMIN_TOKEN);
  answer();
  expect(await inFlight).toMatchObject({ status: 200, headers: { connection: 'close' } });
  expect(await ended).toMatchObject({ code: 0, err: '' });
  const ofPrimary = parsedLines(out)().filter((line) => line.service === 'gateway' && !('worker' in line));
  expect(ofPrimary.map(({ msg }) => msg)).toEqual(['stopping']);
});

test('a stopping gateway does not wait for an idle connection', TIMED, async () => {
  const stack = await startStack();
  const agent = new http.Agent({ keepAlive: true });
  await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey(), agent });
  const before = performance.now();
  await stack.stop();
  expect(performance.now() - before).toBeLessThan(1_000);
  agent.destroy();
});
