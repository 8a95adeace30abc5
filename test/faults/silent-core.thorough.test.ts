import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { faultyCore, listeningCore, okTo } from '../support/faulty-core.ts';
import { scrape } from '../support/metrics.ts';
import { startService } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';
import { TIMED } from '../support/timed.ts';

/** One of two cores falls silent without closing its connections. */

const CORE_TIMEOUT_MS = 5_000;

/** Sends requests for some seconds without waiting for responses. @returns the statuses of all responses */
async function load(ask: () => Promise<{ status: number }>, seconds: number, pauseMs = 10): Promise<number[]> {
  const answers: Promise<{ status: number }>[] = [];
  for (const end = performance.now() + seconds * 1_000; performance.now() < end; await sleep(pauseMs))
    answers.push(ask());
  return (await Promise.all(answers)).map(({ status }) => status);
}

async function startCore() {
  const core = await startService('core/main.ts', {
    PORT: '0',
    DATABASE_URL: `sqlite:${await temporaryFolder()}/store.db`,
  });
  return { url: core.addresses.core ?? '', child: core.child };
}

test.for(['stopped', 'cut off'])(
  'reads that wait for a core that is %s are answered by the other core',
  TIMED,
  async (how) => {
    const [first, second] = [await startCore(), await startCore()];
    const proxy = await startFaultProxy(first.url);
    const { stack, get } = await stackBefore(`${proxy.url},${second.url}`);
    const times: number[] = [];
    const statuses = new Set<number>();
    let isOver = false;
    const client = async () => {
      while (!isOver) {
        const askedAt = performance.now();
        statuses.add((await get()).status);
        times.push(performance.now() - askedAt);
        await sleep(20);
      }
    };
    const clients = Promise.all(Array.from({ length: 16 }, client));
    await expect.poll(() => times.length).toBeGreaterThan(50);
    const before = Math.max(...times);
    if (how === 'stopped') first.child.kill('SIGSTOP');
    else proxy.set({ kind: 'black-hole' });
    await sleep(2_000);
    first.child.kill('SIGCONT');
    isOver = true;
    await clients;
    expect([...statuses]).toEqual([200]);
    const metrics = await scrape(stack.adminUrl);
    const askedAgain = metrics.sum('gateway_upstream_asked_again_total', { core: proxy.url });
    expect(askedAgain).toBeGreaterThan(0);
    expect(Math.max(...times)).toBeLessThan(before + CORE_TIMEOUT_MS / 10 + 500);
  },
);

test('only some reads are sent twice when both cores are slow', async () => {
  let asked = 0;
  const slow = () =>
    faultyCore((socket, head) => {
      if (!head.includes('/readyz')) asked += 1;
      setTimeout(() => socket.write(okTo(head)), head.includes('/readyz') ? 0 : 900);
    });
  const { get } = await stackBefore(`${await slow()},${await slow()}`);
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(Array.from({ length: 100 }, () => get()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  }
  expect(asked).toBeLessThan(500 + 4 * 64 + 60);
});

test('a slow read gets the response of the faster core, and the other response is dropped', async () => {
  const slow = await faultyCore((socket, head) => {
    if (head.includes('/readyz')) socket.write(okTo(head));
    else setTimeout(() => socket.write(okTo(head).replace('[]', '{}')), 3_000);
  });
  const quick = await listeningCore();
  const { get } = await stackBefore(`${slow},${quick.url}`);
  const answers = await Promise.all(Array.from({ length: 20 }, () => get()));
  expect(new Set(answers.map(({ text }) => text))).toEqual(new Set(['[]']));
});

test('reads and writes avoid a core that answers only probes, until it answers requests again', async () => {
  let hangs = false;
  let asked = 0;
  const stuck = await faultyCore((socket, head) => {
    if (head.includes('/readyz')) socket.write(okTo(head));
    else {
      asked += 1;
      if (!hangs) socket.write(okTo(head));
    }
  });
  const { get, post } = await stackBefore(`${stuck},${(await listeningCore()).url}`, { CORE_TIMEOUT_MS: '2000' });
  await load(get, 1);
  hangs = true;
  // The first writes wait for a core that is not yet known to be stuck.
  await load(post, 1);
  expect(new Set(await load(post, 3))).toEqual(new Set([200]));
  expect(new Set(await load(get, 4))).toEqual(new Set([200]));
  hangs = false;
  await load(get, 2);
  const before = asked;
  const statuses = await load(get, 1);
  expect(new Set(statuses)).toEqual(new Set([200]));
  expect(asked - before).toBeGreaterThan(statuses.length / 5);
}, 60_000);

test('when reads are rare, a silent core is tried once a second and no read fails', async () => {
  const READS = 8;
  const stuck = await faultyCore((socket, head) => void (head.includes('/readyz') && socket.write(okTo(head))));
  const { get } = await stackBefore(`${stuck},${(await listeningCore()).url}`, { CORE_TIMEOUT_MS: '2000' });
  const statuses: number[] = [];
  for (let at = 0; at < READS; at++, await sleep(1_050)) statuses.push((await get()).status);
  expect(statuses).toEqual(Array(READS).fill(200));
});

test('writes return to a core that recovered while the other one fell silent', async () => {
  const hanging = [false, false];
  const [first, second] = await Promise.all(
    [0, 1].map((at) =>
      faultyCore((socket, head) => void ((head.includes('/readyz') || !hanging[at]) && socket.write(okTo(head)))),
    ),
  );
  const { post } = await stackBefore(`${first},${second}`, { CORE_TIMEOUT_MS: '2000' });
  hanging[0] = true;
  await load(post, 1, 100);
  hanging[0] = false;
  hanging[1] = true;
  await load(post, 3, 100);
  const statuses = await load(post, 3, 100);
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThan((3 / 4) * statuses.length);
}, 60_000);
