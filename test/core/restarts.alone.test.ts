import http from 'node:http';
import { expect, test } from 'vitest';
import { emptyPostgres } from '../support/databases.ts';
import { post, send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { startService } from '../support/process.ts';
import { startStack } from '../support/stack.ts';

const RESTARTS = 20;
const CLIENTS = 16;

test(`${RESTARTS} restarts of cores under load behind the gateway: no request fails`, async () => {
  const DATABASE_URL = await emptyPostgres();
  const ports = [await freePort(), await freePort()];
  const start = (at: number) =>
    startService('core/main.ts', { PORT: String(ports[at]), DATABASE_URL, LOG_LEVEL: 'warn' });
  const cores = await Promise.all(ports.map((_, at) => start(at)));
  const stack = await startStack({ CORE_URL: ports.map((port) => `http://127.0.0.1:${port}`).join(',') });
  const key = await stack.issueKey({ plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 });

  const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS });
  const statuses = new Map<string, number>();
  let running = true;
  const client = async () => {
    while (running) {
      const isPost = Math.random() < 0.3;
      const sent = isPost
        ? post(`${stack.gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key, agent })
        : send(`${stack.gateway}/v1/pets`, { key, agent });
      const outcome = await sent.then(
        ({ status }) => `${isPost ? 'POST' : 'GET'} ${status}`,
        ({ code }) => `${code}`,
      );
      statuses.set(outcome, (statuses.get(outcome) ?? 0) + 1);
    }
  };
  const clients = Array.from({ length: CLIENTS }, client);
  for (let restart = 0; restart < RESTARTS; restart++) {
    const at = restart % 2;
    cores[at]?.child.kill('SIGTERM');
    expect((await cores[at]?.ended)?.code).toBe(0);
    cores[at] = await start(at);
    await new Promise((resolve) => setTimeout(resolve, 600));
  }
  running = false;
  await Promise.all(clients);
  agent.destroy();
  process.stdout.write(`${RESTARTS} restarts: ${JSON.stringify(Object.fromEntries(statuses))}\n`);
  expect([...statuses.keys()].sort()).toEqual(['GET 200', 'POST 201']);
  for (const { child } of cores) child.kill('SIGINT');
}, 180_000);
