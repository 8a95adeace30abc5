import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync, readSync } from 'node:fs';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { workersEnvironment } from '../support/workers.ts';

const REQUESTS = 1_000;
const CONNECTIONS = 8;
/** Of what is there, every five milliseconds. */
const SLOW_BYTES = 500;
const LONG_PATH = `/v1/${'x'.repeat(8_000)}`;

/** A pipe as a shell makes it, with a reader that is slower than those who write, until it is told to hurry. */
async function slowPipe() {
  const path = `${await temporaryFolder()}/log`;
  execFileSync('mkfifo', [path]);
  const end = openSync(path, constants.O_RDWR);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const chunk = Buffer.alloc(65_536);
  let bytes = SLOW_BYTES;
  let text = '';
  const read = () => {
    try {
      text += chunk.toString('latin1', 0, readSync(reader, chunk, { length: bytes }));
    } catch {
      // Nothing there: EAGAIN.
    }
  };
  const timer = setInterval(read, 5);
  cleanUp(() => {
    clearInterval(timer);
    closeSync(reader);
    closeSync(end);
  });
  return {
    end,
    hurry() {
      bytes = chunk.length;
    },
    text: () => text,
  };
}

test('several workers write whole lines to one pipe, whatever clients ask for and however slowly it is read', async () => {
  const pipe = await slowPipe();
  const environment = await workersEnvironment();
  const { child, ended } = startProcess(process.execPath, ['gateway/main.ts'], environment, {
    stdio: ['ignore', pipe.end, 'pipe', 'ipc'],
  });
  const [{ gateway }] = (await once(child, 'message')) as [{ gateway: string }];
  const agent = new http.Agent({ maxSockets: CONNECTIONS });
  const path = (request: number) => (request % 10 === 0 ? LONG_PATH : '/v1/pets');
  await Promise.all(Array.from({ length: REQUESTS }, (_, request) => send(gateway + path(request), { agent })));
  agent.destroy();
  pipe.hurry();
  child.kill('SIGINT');
  expect((await ended).code).toBe(0);
  await sleep(100);
  const lines = pipe.text().trim().split('\n');
  const logged = lines.map((line) => JSON.parse(line));
  expect(logged.filter(({ msg }) => msg === 'request')).toHaveLength(REQUESTS);
  expect(new Set(logged.map(({ worker }) => worker))).toEqual(new Set([undefined, 1, 2]));
}, 60_000);
