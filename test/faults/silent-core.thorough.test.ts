import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { faultyCore, listeningCore, okTo } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { startService } from '../support/process.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';

/** One of two cores falls silent without closing its connections. */

const big = { plan: 'enterprise', minute: 1_000_000, day: 1_000_000 };
const CORE_TIMEOUT_MS = 5_000;

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
    const stack = await startStack({ CORE_URL: `${proxy.url},${second.url}` });
    const key = await stack.issueKey(big);
    const times: number[] = [];
    const statuses = new Set<number>();
    let isOver = false;
    const client = async () => {
      while (!isOver) {
        const askedAt = performance.now();
        statuses.add((await send(`${stack.gateway}/v1/pets`, { key })).status);
        times.push(performance.now() - askedAt);
        await sleep(5);
      }
    };
    const clients = Promise.all(Array.from({ length: 32 }, client));
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
  const stack = await startStack({ CORE_URL: `${await slow()},${await slow()}` });
  const key = await stack.issueKey(big);
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(Array.from({ length: 100 }, () => send(`${stack.gateway}/v1/pets`, { key })));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  }
  expect(asked).toBeLessThan(500 + 4 * 64 + 60);
});

test('a slow read gets the answer of the faster core, and the other answer is dropped', async () => {
  const slow = await faultyCore((socket, head) => {
    if (head.includes('/readyz')) socket.write(okTo(head));
    else setTimeout(() => socket.write(okTo(head).replace('[]', '{}')), 3_000);
  });
  const quick = await listeningCore();
  const stack = await startStack({ CORE_URL: `${slow},${quick.url}` });
  const key = await stack.issueKey(big);
  const answers = await Promise.all(Array.from({ length: 20 }, () => send(`${stack.gateway}/v1/pets`, { key })));
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
  const well = await faultyCore((socket, head) => void socket.write(okTo(head)));
  const stack = await startStack({ CORE_URL: `${stuck},${well}`, CORE_TIMEOUT_MS: '2000' });
  const key = await stack.issueKey(big);
  const load = async (method: string, seconds: number) => {
    const answers: Promise<{ status: number }>[] = [];
    const end = performance.now() + seconds * 1_000;
    while (performance.now() < end) {
      const url = `${stack.gateway}/v1/pets`;
      answers.push(method === 'GET' ? send(url, { key }) : post(url, {}, { key }));
      await sleep(10);
    }
    return (await Promise.all(answers)).map(({ status }) => status);
  };
  await load('GET', 1);
  hangs = true;
  // The first writes wait for a core that is not yet known to be stuck.
  await load('POST', 1);
  expect(new Set(await load('POST', 4))).toEqual(new Set([200]));
  expect(new Set(await load('GET', 8))).toEqual(new Set([200]));
  hangs = false;
  await load('GET', 2);
  const before = asked;
  expect(new Set(await load('GET', 1))).toEqual(new Set([200]));
  expect(asked - before).toBeGreaterThan(20);
}, 60_000);

test('when reads are rare, a silent core is tried once a second and no read fails', async () => {
  const stuck = await faultyCore((socket, head) => void (head.includes('/readyz') && socket.write(okTo(head))));
  const well = await faultyCore((socket, head) => void socket.write(okTo(head)));
  const stack = await startStack({ CORE_URL: `${stuck},${well}`, CORE_TIMEOUT_MS: '2000' });
  const key = await stack.issueKey(big);
  const read = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  const statuses: number[] = [];
  for (let at = 0; at < 20; at++) {
    statuses.push(await read());
    await sleep(1_050);
  }
  expect(statuses).toEqual(Array(20).fill(200));
}, 90_000);

test('writes return to a core that recovered while the other one fell silent', async () => {
  const hanging = [false, false];
  const [first, second] = await Promise.all(
    [0, 1].map((at) =>
      faultyCore((socket, head) => void ((head.includes('/readyz') || !hanging[at]) && socket.write(okTo(head)))),
    ),
  );
  const stack = await startStack({ CORE_URL: `${first},${second}`, CORE_TIMEOUT_MS: '2000' });
  const key = await stack.issueKey(big);
  const write = async () => (await post(`${stack.gateway}/v1/pets`, {}, { key })).status;
  const writeOften = async (seconds: number) => {
    const statuses: Promise<number>[] = [];
    for (const end = performance.now() + seconds * 1_000; performance.now() < end; await sleep(100))
      statuses.push(write());
    return await Promise.all(statuses);
  };
  hanging[0] = true;
  await writeOften(1);
  hanging[0] = false;
  hanging[1] = true;
  await writeOften(3);
  const statuses = await writeOften(3);
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThan((3 / 4) * statuses.length);
}, 60_000);
