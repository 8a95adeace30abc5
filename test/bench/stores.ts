import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { styleText } from 'node:util';
import type { Redis } from 'ioredis';
import { type Credential, createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../gateway/limiter/key-record.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { connectRedis } from '../../gateway/stores/redis/connection.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import type { KeyCursor, Storage } from '../../gateway/stores/storage.ts';
import { createLogger } from '../../shared/process/logger.ts';
import { startRedisServer } from '../support/redis.ts';
import { targetOf } from '../support/redis-target.ts';
import { secretWith } from '../support/secrets.ts';
import { sum } from '../support/statistics.ts';

/** Measures the cost of the stores: `npm run bench -- --stores`. Each line shows a measurement and its upper bound. */

const MANY = 100_000;
const MOST = 300_000;
const AT_ONCE = 1_000;
/** How long Redis keeps the marks by which it recognizes a repeated change. */
const MARKS_LAST_MS = 61_000;
/** Decisions in one call. */
const BATCH = 128;

let areAllWithin = true;

function report(what: string, measured: number, bound: number, unit: string): void {
  areAllWithin &&= measured <= bound;
  const verdict = measured <= bound ? styleText('green', 'within') : styleText('red', 'over');
  process.stdout.write(`${what.padEnd(66)} ${measured.toFixed(measured < 10 ? 2 : 0)} ${unit} (${verdict} ${bound})\n`);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

const newKey = (at: number): [id: string, record: KeyRecord] => {
  const { id, digest } = createApiKey().credential;
  const secrets = [secretWith(digest, { name: 'first', createdAt: at })];
  return [id, { plan: 'free', name: `customer ${at}`, createdAt: at, secrets }];
};

/** @param onIssued called for each key */
async function issue(storage: Storage, count: number, together: number, onIssued = (_: Credential) => {}) {
  const keys = new Keys(storage);
  async function create(at: number): Promise<void> {
    const [id, record] = newKey(1.7e15 + at * 1_000_000);
    await keys.create(id, record);
    onIssued(credentialOf(id, record.secrets[0]?.digest ?? ''));
  }
  for (let done = 0; done < count; done += together)
    await Promise.all(Array.from({ length: together }, (_, at) => create(done + at)));
}

/** The time for the slowest of a few pages, from the beginning, the middle and the end. */
async function longestPage(keys: Keys): Promise<number> {
  let longest = 0;
  for (const offset of [0, MANY / 2, MANY - 100])
    for (let times = 0; times < 5; times++) {
      const query = { offset, limit: 100, isWanted: () => true };
      longest = Math.max(longest, await timed(() => keys.list(query)));
    }
  return longest;
}

/** The longest time for which a search through all keys blocks the event loop. */
async function longestHold(keys: Keys): Promise<number> {
  let longest = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last - 1);
    last = performance.now();
  }, 1);
  for (let at: number | KeyCursor | undefined = 0; at !== undefined; )
    ({ next: at } = await keys.list({ offset: at, limit: 100, isWanted: ({ record }) => record.name === 'nobody' }));
  clearInterval(timer);
  return longest;
}

/** Reads all keys page by page, as a backup does. @returns their number and the growth of the process's memory */
async function backUp(storage: Storage): Promise<{ count: number; growthMb: number }> {
  const keys = new Keys(storage);
  let [count, most] = [0, 0];
  globalThis.gc?.();
  const before = process.memoryUsage().rss;
  let after: Awaited<ReturnType<Keys['export']>>['next'];
  do {
    const page = await keys.export({ after, limit: 100 });
    count += page.keys.length;
    after = page.next;
    most = Math.max(most, process.memoryUsage().rss);
  } while (after !== undefined);
  return { count, growthMb: (most - before) / 2 ** 20 };
}

async function measure(name: string, storage: Storage): Promise<void> {
  const oneByOne = await timed(() => issue(storage, AT_ONCE, 1));
  process.stdout.write(`${name}: ${AT_ONCE} keys one after another take ${oneByOne.toFixed(0)} ms\n`);
  report(`${name}: ${AT_ONCE} keys at once`, await timed(() => issue(storage, AT_ONCE, AT_ONCE)), 1_000, 'ms');
  await issue(storage, MANY - 2 * AT_ONCE, AT_ONCE);
  const keys = new Keys(storage);
  report(`${name}: a page of 100 out of ${MANY}`, await longestPage(keys), 10, 'ms');
  report(`${name}: a search through ${MANY} keys blocks the event loop`, await longestHold(keys), 20, 'ms');
}

/** The cost in Redis of keys used once: memory per key, and CPU per decision when many share a call. */
async function measureUse(redis: Redis, storage: Storage): Promise<void> {
  const figure = async (name: string) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(await redis.info())?.[1]);
  const cpu = async () => (await figure('used_cpu_user')) + (await figure('used_cpu_sys'));
  await redis.flushdb();
  const memory = await figure('used_memory');
  const issued: Credential[] = [];
  await issue(storage, MOST, AT_ONCE, (credential) => issued.push(credential));
  const limiter = new RedisLimiter(redis, { table: DEFAULT_PLANS });
  const before = await cpu();
  for (let at = 0; at < MOST; at += BATCH)
    await Promise.all(issued.slice(at, at + BATCH).map((credential) => limiter.decide(credential)));
  report('Redis: CPU per decision, 128 at once', (((await cpu()) - before) * 1e6) / MOST, 8, 'µs');
  // Wait until the marks of changes have expired.
  await sleep(MARKS_LAST_MS);
  const each = ((await figure('used_memory')) - memory) / MOST;
  report(`Redis: memory of a used key out of ${MOST}, with its index entry`, each, 600, 'bytes');
}

const folder = await mkdtemp(join(tmpdir(), 'animal-store-bench-'));
try {
  let sqlite = new SqliteStorage(folder);
  await measure('SQLite', sqlite);
  await sqlite.close();
  report(`SQLite: start with ${MANY} keys`, await timed(async () => (sqlite = new SqliteStorage(folder))), 1_000, 'ms');
  await issue(sqlite, MOST - MANY, AT_ONCE);
  const { count, growthMb } = await backUp(sqlite);
  report(`SQLite: memory while ${count} keys are backed up`, growthMb, 50, 'MB');
  await sqlite.close();
  process.stdout.write(`SQLite: files: ${(await readdir(folder)).join(', ')}\n`);
} finally {
  await rm(folder, { recursive: true, force: true });
}

const server = await startRedisServer();
const redis = await connectRedis(
  targetOf('single', server.url, { timeoutMs: 60_000 }),
  createLogger('bench', 'silent'),
);
try {
  const storage = new RedisStorage(redis);
  const calls = async () => {
    const counts = (await redis.info('commandstats')).matchAll(/^cmdstat_(?:eval|evalsha|wait):calls=(\d+)/gm);
    return sum([...counts].map(([, count]) => Number(count)));
  };
  const before = await calls();
  await issue(storage, AT_ONCE, 1);
  report('Redis: calls for a key', ((await calls()) - before) / AT_ONCE, 1.2, 'calls');
  await redis.flushdb();
  await measure('Redis', storage);
  await issue(storage, MOST - MANY, AT_ONCE);
  const { count, growthMb } = await backUp(storage);
  report(`Redis: memory while ${count} keys are backed up`, growthMb, 50, 'MB');
  await measureUse(redis, storage);
} finally {
  redis.disconnect();
  await server.stop();
}

process.exitCode = areAllWithin ? 0 : 1;
