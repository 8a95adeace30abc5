import { once } from 'node:events';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { send } from '../support/http.ts';
import { logPipe } from '../support/log-pipe.ts';
import { startProcess } from '../support/process.ts';
import { workersEnvironment } from '../support/workers.ts';

const REQUESTS = 1_000;
const CONNECTIONS = 8;
/** Bytes read from the pipe every five milliseconds. */
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
