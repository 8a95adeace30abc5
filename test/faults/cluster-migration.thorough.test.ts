import slotOf from 'cluster-key-slot';
import { expect, test } from 'vitest';
import { judge } from '../support/allowance-checker.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { type Answered, startLoad } from '../support/paced-load.ts';
import { type ClusterNode, moveSlot, type RedisCluster, startRedisCluster } from '../support/redis-cluster.ts';
import { type Stack, startStack } from '../support/stack.ts';

const KEYS = 12;
const MINUTE_LIMIT = 20;
/** More requests than the limits of all keys allow together. */
const REQUESTS = 2_000;
const MOVES = 2 * KEYS;

async function setUp() {
  const cluster = await startRedisCluster();
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: cluster.urls, REDIS_TIMEOUT_MS: '5000' });
  await stack.admin('PATCH', '/plans/free', { minute: MINUTE_LIMIT, ban_after: 1_000_000_000 });
  const keys = await Promise.all(Array.from({ length: KEYS }, () => stack.issueKey()));
  // These requests connect the gateway to every node and cost no tokens.
  await untilAnswered(stack, keys, '/v1/limits');
  return { cluster, stack, keys };
}

async function untilAnswered({ gateway }: Stack, keys: readonly string[], path: string): Promise<void> {
  for (const key of keys) await expect.poll(async () => (await send(gateway + path, { key })).status).toBe(200);
}

/** Moves the slots of these keys between nodes until `isOver`. @returns the number of moves */
async function reshard(
  cluster: RedisCluster,
  keys: readonly string[],
  isOver: (moved: number) => boolean,
): Promise<number> {
  let moved = 0;
  for (; !isOver(moved); moved++) {
    const slot = slotOf(idOf(keys[moved % keys.length] as string));
    const from = await cluster.ownerOf(slot);
    const to = cluster.nodes[(cluster.nodes.indexOf(from) + 1) % cluster.nodes.length] as ClusterNode;
    await moveSlot(cluster, slot, to, { pauseMs: 5 });
  }
  return moved;
}

function loadWith(stack: Stack, keys: readonly string[]) {
  let turn = 0;
  return startLoad(stack.gateway, () => keys[turn++ % keys.length] as string, { clients: 24, pauseMs: 1 });
}

/** Expects both 200 and 429, and no other status. Any other status is shown with its log line. */
function expectDecisions(answers: readonly Answered[], { log }: Stack): void {
  const others = answers.filter(({ status }) => status !== 200 && status !== 429);
  const reported = others.map(({ status, id }) => ({ status, logged: log.find(({ requestId }) => requestId === id) }));
  expect(reported).toEqual([]);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
}

test('no request fails or is charged twice while slots migrate under load and scripts are flushed', async () => {
  const { cluster, stack, keys } = await setUp();
  const flushing = setInterval(() => {
    for (const { redis } of cluster.nodes) void redis.script('FLUSH');
  }, 20);
  cleanUp(() => clearInterval(flushing));
  const load = loadWith(stack, keys);
  const moved = await reshard(cluster, keys, (slots) => slots >= MOVES && load.answers.length >= REQUESTS);
  await load.stop();
  clearInterval(flushing);
  const { answers } = load;
  process.stdout.write(`${answers.length} requests while ${moved} slots moved\n`);

  expectDecisions(answers, stack);
  expect(stack.log.filter(({ level }) => level > 30)).toEqual([]);
  const { violations, usedShare } = judge(answers, { capacity: MINUTE_LIMIT, windowMs: 60_000 });
  expect(violations).toEqual([]);
  expect(usedShare).toBeGreaterThanOrEqual(0.999);
  for (const key of keys) {
    const own = answers.filter((answer) => answer.key === key);
    const admitted = own.filter((answer) => answer.admitted).length;
    const hash = await cluster.read(`gateway:key:{${idOf(key)}}`);
    expect({ admitted: hash.admitted, refused: hash.refused }).toEqual({
      admitted: String(admitted),
      refused: String(own.length - admitted),
    });
  }
});

test('a node that joins under load and takes over slots is discovered without an effect on verified keys', async () => {
  const { cluster, stack, keys } = await setUp();
  await untilAnswered(stack, keys, '/v1/pets');
  const load = loadWith(stack, keys);
  await expect.poll(() => new Set(load.answers.map(({ key }) => key)).size).toBe(KEYS);
  const added = await cluster.join();
  for (const slot of new Set(keys.map((key) => slotOf(idOf(key)))))
    await moveSlot(cluster, slot, added, { pauseMs: 5 });
  await load.stop();
  expectDecisions(load.answers, stack);
  expect(await added.redis.keys('gateway:key:*')).toHaveLength(KEYS);
  const fresh = await Promise.all(keys.map(() => stack.issueKey()));
  const first = await Promise.all(fresh.map((key) => send(`${stack.gateway}/v1/pets`, { key })));
  expect(new Set(first.map(({ status }) => status))).toEqual(new Set([200]));
});
