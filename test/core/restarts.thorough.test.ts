import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { emptyPostgres } from '../support/databases.ts';
import { readAndWrite } from '../support/load.ts';
import { freePort } from '../support/port.ts';
import { startService } from '../support/process.ts';
import { startStack } from '../support/stack.ts';
import { BOUNDLESS } from '../support/workers.ts';

const RESTARTS = 4;
const CLIENTS = 16;
/** Short enough for requests to be in flight at every stop. Without a pause, requests would overload the machine. */
const PAUSE_MS = 20;

test(`${RESTARTS} core restarts under load behind the gateway cause no failed request`, async () => {
  const DATABASE_URL = await emptyPostgres();
  const ports = [await freePort(), await freePort()];
  const start = (at: number) =>
    startService('core/main.ts', { PORT: String(ports[at]), DATABASE_URL, LOG_LEVEL: 'warn' });
  const cores = await Promise.all(ports.map((_, at) => start(at)));
  const stack = await startStack({ CORE_URL: ports.map((port) => `http://127.0.0.1:${port}`).join(',') });
  const key = await stack.issueKey(BOUNDLESS);

  const load = readAndWrite(stack.gateway, key, CLIENTS, PAUSE_MS);
  for (let restart = 0; restart < RESTARTS; restart++) {
    const at = restart % 2;
    cores[at]?.child.kill('SIGTERM');
    expect((await cores[at]?.ended)?.code).toBe(0);
    cores[at] = await start(at);
    await sleep(600);
  }
  await load.end();
  process.stdout.write(`${RESTARTS} restarts: ${JSON.stringify(Object.fromEntries(load.outcomes))}\n`);
  expect([...load.outcomes.keys()].sort()).toEqual(['GET 200', 'POST 201']);
  for (const { child } of cores) child.kill('SIGINT');
}, 600_000);
