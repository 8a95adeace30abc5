import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { ownRedis } from '../support/redis-database.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';
import { isAlive, startWorkers, untilServing } from '../support/workers.ts';

const workers = await startWorkers();

test('workers share the port for clients, and the primary serves operators for all of them', async () => {
  expect(workers.pids()).toHaveLength(2);
  expect((await workers.admin('/readyz')).status).toBe(200);
  const { text, headers } = await workers.admin('/metrics');
  expect(headers['content-type']).toContain('text/plain');
  expect(text).toMatch(/^gateway_workers_serving 2$/m);
  expect(text).toMatch(/^gateway_worker_crashes_total 0$/m);
  expect(text).toMatch(/^gateway_admin_requests_total\{operation="readyz",status="200"\} 1$/m);
  const started = [...text.matchAll(/^process_start_time_seconds(\{worker="[12]"\})? \d+$/gm)].map(
    ([, label]) => label,
  );
  expect(started).toEqual([undefined, '{worker="1"}', '{worker="2"}']);

  // The day limit is the tighter one, so that no token is refilled during the test.
  const key = await workers.issueKey({ plan: 'enterprise', minute: 1_000, day: 60 });
  const answers = await Promise.all(Array.from({ length: 60 }, () => send(`${workers.gateway}/v1/pets`, { key })));
  expect(answers.map(({ headers: { 'x-ratelimit-remaining': left } }) => Number(left)).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 60 }, (_, left) => left),
  );
  expect((await send(`${workers.gateway}/v1/pets`, { key })).status).toBe(429);
});

test("no worker's environment contains the operators' token or the path of its file", async () => {
  const file = join(await temporaryFolder(), 'token');
  await writeFile(file, ADMIN_TOKEN);
  const withFile = await startWorkers({
    WORKERS: '1',
    ADMIN_HOST: '0.0.0.0',
    ADMIN_TOKEN: '',
    ADMIN_TOKEN_FILE: file,
    REDIS_URL: (await ownRedis()).url,
  });
  for (const pid of [...workers.pids(), ...withFile.pids()]) {
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8');
    expect(environment).toContain('CORE_URL=');
    expect(environment).not.toMatch(/ADMIN_/);
    expect(environment).not.toContain(ADMIN_TOKEN);
  }
});

test('a hanging worker is left out of the metrics and delays neither them nor the other worker', TIMED, async () => {
  await untilServing(workers, 2);
  const [first = 0] = workers.pids();
  process.kill(first, 'SIGSTOP');
  cleanUp(() => isAlive(first) && process.kill(first, 'SIGCONT'));
  const before = performance.now();
  const { status, text } = await workers.admin('/metrics');
  expect(performance.now() - before).toBeLessThan(5_000);
  expect([status, text.includes('worker="1"'), text.includes('worker="2"')]).toEqual([200, false, true]);
  expect((await send(`${workers.gateway}/v1/pets`, { key: await workers.issueKey() })).status).toBe(200);
});
