import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { type Answer, send } from '../support/http.ts';
import { get } from '../support/operators.ts';
import { type ClusterNode, type RedisCluster, startRedisCluster } from '../support/redis-cluster.ts';
import { replicated } from '../support/replicated.ts';
import { type Stack, startStack } from '../support/stack.ts';
import { TIMED } from '../support/timed.ts';

async function setUp(timeoutMs = 5_000) {
  const cluster = await startRedisCluster();
  const settings = { REDIS_MODE: 'cluster', REDIS_URL: cluster.urls, REDIS_TIMEOUT_MS: String(timeoutMs) };
  const stack = await startStack(settings);
  return { cluster, stack };
}

const ask = (stack: Stack, key: string): Promise<Answer> => send(`${stack.gateway}/v1/pets`, { key });

/** Creates two keys for each node. Those in `served` have been used once. */
async function keysByNode({ cluster, stack }: { cluster: RedisCluster; stack: Stack }) {
  const served = new Map<ClusterNode, string>();
  const unseen = new Map<ClusterNode, string>();
  while (unseen.size < cluster.nodes.length) {
    const key = await stack.issueKey();
    const node = await cluster.ownerOf(slotOf(idOf(key)));
    if (served.has(node)) unseen.set(node, key);
    else served.set(node, key);
  }
  // On a busy machine, the gateway may briefly lose its connection to a node at the start.
  for (const key of served.values())
    await expect.poll(async () => (await ask(stack, key)).status, { timeout: 10_000, interval: 50 }).toBe(200);
  return { served, unseen };
}

const modeOfLast = (stack: Stack) => stack.log.findLast(({ msg }) => msg === 'request')?.mode ?? 'shared';

const faults: [name: string, cause: (node: ClusterNode) => unknown, heal: (node: ClusterNode) => unknown][] = [
  ['killed', ({ server }) => server.stop(), ({ server }) => server.restart()],
  ['suspended', ({ server }) => server.pause(), ({ server }) => server.resume()],
];

test.for(faults)(
  'a node that is %s affects only its own keys, on which the gateway decides locally',
  // The other nodes have a deadline of a second for each decision, which a busy machine may miss.
  TIMED,
  async ([, cause, heal]) => {
    const { cluster, stack } = await setUp(1_000);
    const { served, unseen } = await keysByNode({ cluster, stack });
    const [lost, ...others] = cluster.nodes as [ClusterNode, ...ClusterNode[]];
    await cause(lost);
    for (let round = 0; round < 10; round++) {
      expect((await ask(stack, served.get(lost) as string)).status).toBe(200);
      expect(modeOfLast(stack)).toBe('local');
      for (const node of others) {
        expect((await ask(stack, served.get(node) as string)).status).toBe(200);
        expect(modeOfLast(stack)).toBe('shared');
      }
      await sleep(50);
    }
    expect((await ask(stack, unseen.get(lost) as string)).status).toBe(503);
    for (const node of others) expect((await ask(stack, unseen.get(node) as string)).status).toBe(200);
    // A silent node counts as unavailable only after a missed deadline.
    const away = () => stack.log.filter(({ msg }) => msg === 'decisions are local').map(({ node }) => node);
    await expect.poll(away).toEqual([`127.0.0.1:${lost.port}`]);

    await heal(lost);
    await expect
      .poll(async () => (await ask(stack, unseen.get(lost) as string)).status, { timeout: 10_000, interval: 50 })
      .toBe(200);
    await ask(stack, served.get(lost) as string);
    expect(modeOfLast(stack)).toBe('shared');
  },
);

const LISTS = ['/keys', '/keys/find?text=test', '/bans', '/usage', '/backup'];

test(`while a node is down, its name is in the errors of ${LISTS.join(', ')}, and the doctor counts the slots that it served`, async () => {
  const { cluster, stack } = await setUp();
  await keysByNode({ cluster, stack });
  const lost = cluster.nodes[0] as ClusterNode;
  const about = `redis 127.0.0.1:${lost.port}`;
  const seen = async () =>
    (await get<DoctorAnswer>(stack, '/doctor')).findings.filter((one) =>
      ['redis cluster', 'decisions', about].includes(one.about),
    );
  const good = [
    expect.objectContaining({ about: 'redis cluster', found: 'all slots are served' }),
    expect.objectContaining({ about, status: 'good' }),
  ];
  await expect.poll(seen).toEqual(good);
  await lost.server.stop();
  const message = `Redis node 127.0.0.1:${lost.port} does not answer.`;
  for (let round = 0; round < 5; round++) {
    for (const path of LISTS) expect((await stack.admin('GET', path)).json).toMatchObject({ status: 503, message });
    await sleep(200);
  }
  const found = expect.stringMatching(/^546\d of 16384 slots are not served$/);
  const bad = [
    expect.objectContaining({ about: 'redis cluster', found, advice: 'Start the nodes that do not answer.' }),
    expect.objectContaining({ about, status: 'fault', found: expect.stringMatching(/^does not answer/) }),
  ];
  await expect.poll(seen).toEqual(bad);
  await sleep(1_500);
  expect(await seen()).toEqual(bad);
  await lost.server.restart();
  await expect.poll(seen, { timeout: 10_000 }).toEqual(good);
});

test('a replica that replaces a dead primary continues with its data', async () => {
  const { cluster, stack } = await setUp();
  const { served, unseen } = await keysByNode({ cluster, stack });
  const lost = cluster.nodes[0] as ClusterNode;
  const replica = await cluster.join({ replicaOf: lost });
  for (let spent = 0; spent < 10; spent++) await ask(stack, served.get(lost) as string);
  await replicated(lost.redis, 1, idOf(served.get(lost) as string));
  await lost.server.stop();
  expect((await ask(stack, served.get(lost) as string)).status).toBe(200);
  await expect
    .poll(async () => (await ask(stack, unseen.get(lost) as string)).status, { timeout: 10_000, interval: 100 })
    .toBe(200);
  const answer = await ask(stack, served.get(lost) as string);
  expect([answer.status, modeOfLast(stack)]).toEqual([200, 'shared']);
  // All local decisions are charged, except the first, which the dying node may already have charged.
  await sleep(2_000);
  const hash = await replica.redis.hgetall(`gateway:key:{${idOf(served.get(lost) as string)}}`);
  expect([1 + 10 + 1, 1 + 10 + 1 + 1]).toContain(Number(hash.admitted));
});

test('after a manual failover, the doctor reports the new primary and no fault', async () => {
  const { cluster, stack } = await setUp();
  // Without decisions, the gateway sends nothing to this node that the node could redirect.
  const old = cluster.nodes[1] as ClusterNode;
  const replica = await cluster.join({ replicaOf: old });
  const findings = async () => ((await stack.admin('GET', '/doctor')).json as DoctorAnswer).findings;
  const ofNodes = async () =>
    (await findings()).filter(({ found }) => /^Redis [\d.]+, /.test(found)).map(({ about, status }) => [about, status]);
  await expect.poll(async () => (await ofNodes()).length).toBe(3);
  for (const [from, to] of [
    [old, replica],
    [replica, old],
  ] as const) {
    const roleOf = async ({ redis }: typeof to) => ((await redis.role()) as unknown as string[])[0];
    await expect.poll(async () => /master_link_status:up/.test(await to.redis.info('replication'))).toBe(true);
    // Some failovers find no majority in time.
    const swapped = async () => {
      if ((await roleOf(to)) !== 'master') await to.redis.cluster('FAILOVER');
      return [await roleOf(to), await roleOf(from)];
    };
    await expect.poll(swapped, { interval: 3_000 }).toEqual(['master', 'slave']);
    // The nodes exchange their roles within a second.
    await sleep(1_500);
    expect(await ofNodes()).toContainEqual([`redis 127.0.0.1:${to.port}`, 'good']);
    expect((await findings()).filter(({ status }) => status === 'fault')).toEqual([]);
  }
});

/** Keeps the node busy, so that it receives a decision but closes the connection before it replies. */
async function hangUpOn(node: ClusterNode, decision: () => Promise<Answer>): Promise<Answer> {
  const other = node.redis.duplicate();
  await other.ping();
  const now = "local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000";
  const busy = node.redis.eval(`local function now() ${now} end local e = now() + 150 while now() < e do end`, 0);
  await sleep(30);
  const answer = decision();
  await sleep(60);
  await Promise.all([busy, other.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes').catch(() => undefined)]);
  other.disconnect();
  return await answer;
}

test('a decision whose node disconnects before its reply is not repeated', async () => {
  const { cluster, stack } = await setUp();
  const node = cluster.nodes[0] as ClusterNode;
  const { served } = await keysByNode({ cluster, stack });
  const key = served.get(node) as string;
  const charged = async () => Number((await cluster.read(`gateway:key:{${idOf(key)}}`)).admitted);
  let unanswered = 0;
  for (let round = 0; round < 5; round++) {
    await expect.poll(async () => (await ask(stack, key)) && modeOfLast(stack), { timeout: 10_000 }).toBe('shared');
    // By then, the decisions made locally in the meantime have been charged.
    await sleep(600);
    const before = await charged();
    expect((await hangUpOn(node, () => ask(stack, key))).status).toBe(200);
    const isLocal = modeOfLast(stack) === 'local';
    await sleep(100);
    const times = (await charged()) - before;
    expect(times).toBeLessThanOrEqual(1);
    if (isLocal && times === 1) unanswered += 1;
  }
  expect(unanswered).toBeGreaterThan(0);
});

test('a gateway starts without its cluster and shares decisions once the cluster is up', async () => {
  const cluster = await startRedisCluster();
  for (const { server } of cluster.nodes) server.pause();
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: cluster.urls });
  expect((await stack.admin('GET', '/keys')).status).toBe(503);
  for (const { server } of cluster.nodes) server.resume();
  await expect.poll(async () => (await stack.admin('GET', '/keys')).status, { timeout: 10_000 }).toBe(200);
  await expect
    .poll(async () => (await ask(stack, await stack.issueKey())).status, { timeout: 10_000, interval: 100 })
    .toBe(200);
  expect(stack.log.filter(({ msg }) => msg === 'redis is unavailable')).toHaveLength(1);
});
