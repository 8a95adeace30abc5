import { once } from 'node:events';
import { openSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { usageOf } from '../bench/machine/usage.ts';
import { childrenOf } from '../support/children.ts';
import { send } from '../support/http.ts';
import { floodWithoutKey } from '../support/keyless-flood.ts';
import { logPipe } from '../support/log-pipe.ts';
import { scrape } from '../support/metrics.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { sum } from '../support/statistics.ts';
import { fact, TIMED } from '../support/timed.ts';

/** Each request logs a path of 1 kB, so that all lines together exceed the buffer for waiting lines. */
const REQUESTS = 4_000;
const MAX_WAITING_BYTES = 4_194_304;
const PIPE_BYTES = 65_536;
/** A typical run needs 40 MB, mostly heap that grows under any load. */
const MAX_MORE_MEGABYTES = 80;
const EVERYTHING = 65_536;

/** Starts a gateway that has no core and logs to the file descriptor `end` or to a socket. */
async function startLogging(end: number | 'socket', settings: NodeJS.ProcessEnv = {}) {
  const environment = {
    PORT: '0',
    ADMIN_PORT: '0',
    ADMIN_TOKEN: 'token-of-the-tests',
    DATA_DIR: await temporaryFolder(),
    ...settings,
  };
  const { child, ended, out } = startProcess(process.execPath, ['gateway/main.ts'], environment, {
    // What Node calls a pipe is a pair of sockets.
    stdio: ['ignore', end === 'socket' ? 'pipe' : end, 'pipe', 'ipc'],
  });
  const [{ gateway, admin }] = (await once(child, 'message')) as [{ gateway: string; admin: string }];
  const metric = async (name: string) => (await scrape(admin)).sum(name) ?? 0;
  const serving = Number(settings.WORKERS ?? 1);
  await vi.waitFor(async () => expect(await metric('gateway_workers_serving')).toBe(serving), 30_000);
  return {
    gateway,
    child,
    ended,
    out,
    answered: () => metric('gateway_requests_total'),
    dropped: () => metric('gateway_log_lines_dropped_total'),
    megabytes: () =>
      sum([child.pid as number, ...childrenOf(child.pid as number)].map((pid) => usageOf(pid).residentMegabytes)),
  };
}

/**
 * Reads until the value is stable for longer than the 5 s after which the gateway drops a broken connection.
 */
async function settled(read: () => Promise<number>): Promise<number> {
  for (let before = await read(); ; ) {
    await sleep(5_500);
    const now = await read();
    if (now === before) return now;
    before = now;
  }
}

const linesOf = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

const requestsIn = (text: string) => linesOf(text).filter(({ msg, path }) => msg === 'request' && path !== '/metrics');

// Started outside the tests, because what a concurrent test starts may be stopped when another one ends.
const unread = await Promise.all(
  [
    { workers: 'one worker', count: 1, settings: {} },
    { workers: 'two workers', count: 2, settings: { WORKERS: '2', REDIS_URL: 'redis://127.0.0.1:1' } },
  ].map(async ({ settings, ...about }) => {
    const pipe = await logPipe();
    return { ...about, pipe, gateway: await startLogging(pipe.end, settings) };
  }),
);
const read = await Promise.all(
  (['file', 'socket'] as const).map(async (kind) => {
    const file = `${await temporaryFolder()}/log`;
    return { kind, file, gateway: await startLogging(kind === 'socket' ? kind : openSync(file, 'a')) };
  }),
);

test.concurrent.for(unread)(
  'a log without a reader uses bounded memory, and dropped lines are reported once it is read again: $workers',
  async ({ count, pipe, gateway }, { expect }) => {
    const before = gateway.megabytes();
    await floodWithoutKey(gateway.gateway, REQUESTS * count);
    expect(gateway.megabytes() - before).toBeLessThan(MAX_MORE_MEGABYTES * count);
    await expect.poll(gateway.dropped).toBeGreaterThan(0);
    // Waits until all requests of the flood are counted.
    await settled(gateway.answered);

    pipe.read(EVERYTHING);
    await expect.poll(() => pipe.text()).toContain('log lines dropped');
    /** Returns the complete lines read so far. */
    const readable = () => pipe.text().slice(0, pipe.text().lastIndexOf('\n'));
    const dropLines = () => linesOf(readable()).filter(({ msg }) => msg === 'log lines dropped');
    const droppedLines = () => sum(dropLines().map(({ lines }) => lines));
    await expect
      .poll(
        async () => [
          (await gateway.dropped()) - droppedLines(),
          (await gateway.answered()) - droppedLines() - requestsIn(readable()).length,
        ],
        { timeout: 30_000 },
      )
      .toEqual([0, 0]);
    expect(pipe.text().length).toBeLessThan(count * 1.1 * MAX_WAITING_BYTES + PIPE_BYTES);

    await send(`${gateway.gateway}/v1/afterwards`);
    await expect.poll(() => pipe.text()).toContain('/v1/afterwards');
  },
);

test.concurrent.for(read)(
  'a $kind that the gateway logs to receives the line of every request in a flood',
  async ({ kind, file, gateway }, { expect }) => {
    const before = gateway.megabytes();
    await floodWithoutKey(gateway.gateway, REQUESTS);
    expect(gateway.megabytes() - before).toBeLessThan(MAX_MORE_MEGABYTES);
    const answered = await settled(gateway.answered);
    expect(await gateway.dropped()).toBe(0);
    gateway.child.kill('SIGINT');
    await gateway.ended;
    const text = kind === 'socket' ? gateway.out() : readFileSync(file, 'utf8');
    expect(requestsIn(text)).toHaveLength(answered);
  },
);

test(
  'a gateway whose log is not read stops on SIGINT after its worker and primary have waited for a reader',
  TIMED,
  async () => {
    const pipe = await logPipe();
    const gateway = await startLogging(pipe.end);
    await floodWithoutKey(gateway.gateway, 500);
    const before = performance.now();
    gateway.child.kill('SIGINT');
    const { code } = await gateway.ended;
    const endMs = performance.now() - before;
    await fact(() => expect(code).toBe(0));
    expect(endMs).toBeLessThan(6_000);
  },
);

test('workers restart, and the gateway stops, even if the socket that it logs to is not read', TIMED, async () => {
  const gateway = await startLogging('socket');
  const { pid, stdout } = gateway.child;
  stdout?.pause();
  await floodWithoutKey(gateway.gateway, 500);
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const [worker] = childrenOf(pid as number);
    process.kill(worker as number, signal);
    await expect.poll(() => childrenOf(pid as number)).not.toContain(worker);
    await fact(() => expect.poll(() => send(gateway.gateway).catch(() => undefined)).toBeDefined());
    await floodWithoutKey(gateway.gateway, 500);
  }
  const before = performance.now();
  gateway.child.kill('SIGINT');
  const [code] = await once(gateway.child, 'exit');
  const endMs = performance.now() - before;
  await fact(() => expect(code).toBe(0));
  expect(endMs).toBeLessThan(6_000);
});

test('a full disk makes a gateway drop log lines and has no other effect', async () => {
  const gateway = await startLogging(openSync('/dev/full', 'w'));
  await floodWithoutKey(gateway.gateway, REQUESTS);
  await expect.poll(gateway.dropped).toBeGreaterThan(0);
  // The address may have a new token by now.
  expect([401, 429]).toContain((await send(`${gateway.gateway}/v1/pets`)).status);
});
