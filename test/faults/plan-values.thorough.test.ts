import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { DEFAULT_PLANS, storedPlans } from '../../gateway/limiter/plans.ts';
import { judge } from '../support/allowance-checker.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { type Answered, ask, startLoad } from '../support/paced-load.ts';
import { connectionTo, emptyDatabase, ownRedis } from '../support/redis-database.ts';
import { startGatewayProcess } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';
import { ADMIN_TOKEN, startStack } from '../support/stack.ts';
import { median } from '../support/statistics.ts';

/** Invalid limits that people or scripts might enter. A valid limit is a number from 1 to 10^9 in plain digits. */
const NAUGHTY_VALUES: readonly string[] = [
  // Some parsers accept these as numbers.
  ...'nan NaN -nan inf Infinity -inf 1e3 1E3 6e1 1e-3 1e400 0x3C 0X3c 0b111 0o74'.split(' '),
  ...'0 00 0000000000 -0 -1 -60 +5 +60 --5 60.0 60. .5 1,000 1.000 1_000'.split(' '),
  ...['1 000', "1'000"],
  ...['1000000001', '2147483648', '4294967296', '9007199254740993', '9223372036854775808', '18446744073709551616'],
  ...'00000000060 60n 60L 60f 60/1 1e 0x ½ 1/2 60% #60 60s'.split(' '),
  ...['9'.repeat(30), `0.${'0'.repeat(400)}1`, '6 0', '$60'],
  // All kinds of whitespace.
  ...['', ' ', ' 60', '60 ', '\t60', '60\n', '60\r\n', '\u00a060', '60\u200b', '\ufeff60', '\u202e60', '60\u2028'],
  // Digits of other scripts and lookalikes.
  ...'６０ ٦٠ ६० ๖๐ ⑥⓪ ² Ⅵ l0 6O sixty sechzig 六十 𝟞𝟘 🔟 6️⃣0️⃣ 💯 👩‍👩‍👧‍👦'.split(' '),
  // Null values and lists.
  ...'null nil undefined none true false unlimited max * - ? {} [] [60] {"minute":60} "60"'.split(' '),
  ...["'60'"],
  // Values that are dangerous to code that evaluates, formats, splits or quotes them.
  ...'%s%s%n %d %99999d {{60}} 60; 60||1'.split(' '),
  ...['\0', '60\0', '\u0001\u001b[31m60', '\u0024{60}', '$(echo 60)', '`60`', '60 # x', '60 --'],
  ...'<script>60</script> ../../etc/passwd os.exit()'.split(' '),
  ...["60'; DROP TABLE plans; --", "1' OR '1'='1", '60\n70', '\n60 60 60 60 60', '60 60', 'return 60'],
  ...'__proto__ constructor toString hasOwnProperty free.minute'.split(' '),
  ...['60\r\nHSET gateway:plans free.minute 1', '*3\r\n$3\r\nSET\r\n'],
  ...['Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞', 'ﷺ', '\ufffd', '7'.repeat(10_000), 'x'.repeat(10_000)],
];

/** Tests invalid edits to the plan table while two gateways use it under load. */

const TIGHT = 5;
/**
 * The valid values before each edit. They differ from the defaults, so that a fallback to defaults would be noticed.
 */
const GOOD = {
  'free.minute': '900000',
  'pro.minute': String(TIGHT),
  'pro.ban_after': '1000000000',
  'business.day': '99999',
};

/** The fields that are required and must not be 0. */
const FIELDS = Object.keys(storedPlans(DEFAULT_PLANS)).filter((field) => !field.endsWith('.ban_grace_seconds'));

const server = await ownRedis();
const redis = connectionTo(server.url);
await redis.hset('gateway:plans', { ...storedPlans(DEFAULT_PLANS), ...GOOD });
// Even a busy machine meets this long deadline, so Redis makes every decision.
const settings = { CORE_URL: (await listeningCore()).url, REDIS_URL: server.url, REDIS_TIMEOUT_MS: '5000' };
const gateways = await Promise.all([1, 2].map(() => startGatewayProcess(settings)));

const free = await createKey(redis, { day: 1_000_000_000 });
const pro = await createKey(redis, { plan: 'pro' });
const overridden = await createKey(redis, { plan: 'pro' });

/** Uses each key on all gateways while the task runs. */
async function underLoad<T>(task: () => Promise<T>): Promise<{ result: T; answers: readonly Answered[] }> {
  const keys = [free, pro, overridden].map(({ apiKey }) => apiKey);
  let turn = 0;
  const load = { clients: 2, pauseMs: 10 };
  const loads = gateways.map(({ url }) => startLoad(url, () => keys[turn++ % keys.length] as string, load));
  const result = await task();
  await Promise.all(loads.map((each) => each.stop()));
  return { result, answers: loads.flatMap(({ answers }) => answers) };
}

/** The last plan table that each gateway has read. */
const tablesInForce = () =>
  Promise.all(gateways.map(async ({ adminUrl }) => (await send(`${adminUrl}/plans`, { key: ADMIN_TOKEN })).json));

/** Writes `value` into every field of every plan and the overrides of a key. */
const typeEverywhere = (value: string) =>
  redis
    .multi()
    .hset('gateway:plans', Object.fromEntries(FIELDS.map((field) => [field, value])))
    .hset(overridden.hash, { minute: value, day: value })
    .exec();

const inForce = (await tablesInForce())[0];
const typed = await underLoad(async () => {
  const tables: unknown[] = [];
  for (const value of NAUGHTY_VALUES) {
    await typeEverywhere(value);
    tables.push(...(await tablesInForce()));
  }
  return tables;
});
const removed = await underLoad(async () => {
  await redis.del('gateway:plans');
  const gone = await tablesInForce();
  await sleep(300);
  await redis.set('gateway:plans', 'a string');
  await sleep(300);
  return [...gone, ...(await tablesInForce())];
});
await redis.del('gateway:plans');
await redis.hset('gateway:plans', { ...storedPlans(DEFAULT_PLANS), ...GOOD });
const liveAfterMs: number[] = [];
for (const limit of ['900001', '900002', '900003']) liveAfterMs.push(await timeUntilLive(limit));
const logs = await Promise.all(gateways.map((gateway) => gateway.stop()));

/** Milliseconds from a change until all gateways use it. */
async function timeUntilLive(limit: string): Promise<number> {
  const changedAt = performance.now();
  await redis.hset('gateway:plans', 'free.minute', limit);
  const isLive = async (gateway: string) =>
    (await ask(gateway, free.apiKey)).headers['ratelimit-policy']?.includes(`"minute";q=${limit};`);
  await Promise.all(
    gateways.map(async ({ url }) => {
      while (!(await isLive(url)) && performance.now() - changedAt < 10_000) await sleep(10);
    }),
  );
  return performance.now() - changedAt;
}

describe.for([
  [`${NAUGHTY_VALUES.length} invalid values in every field`, typed],
  ['a plan table that is deleted and then replaced by a string', removed],
] as const)('%s', ([, { result, answers }]) => {
  test('the last valid table stays in force on every gateway', () => {
    expect(inForce).toMatchObject({ free: { minute: 900_000 }, pro: { minute: TIGHT }, business: { day: 99_999 } });
    for (const table of result) expect(table).toEqual(inForce);
  });

  test('no request with a key within its limit fails', () => {
    const ofFree = answers.filter(({ key }) => key === free.apiKey);
    expect(ofFree.length).toBeGreaterThan(10);
    expect(new Set(ofFree.map(({ status }) => status))).toEqual(new Set([200]));
    expect(answers.filter(({ status }) => status !== 200 && status !== 429)).toEqual([]);
  });
});

test('invalid values remove no limit from a plan or a key', () => {
  const answers = [...typed.answers, ...removed.answers].filter(({ key }) => key !== free.apiKey);
  const { violations } = judge(answers, { capacity: TIGHT, windowMs: 60_000 });
  expect(violations).toEqual([]);
  expect(answers.filter(({ admitted }) => admitted).length).toBeGreaterThanOrEqual(2 * TIGHT);
  expect(answers.length).toBeGreaterThan(20 * TIGHT);
});

test('every gateway logs an error for each invalid value of each field, and for a missing or unreadable table', () => {
  // Only the first gateways to notice this log it. The others find the restored table.
  expect(logs.flat().some(({ msg }) => String(msg).startsWith('the plan table is missing'))).toBe(true);
  for (const log of logs) {
    const alarms = log.filter(({ msg }) => msg === 'plan value rejected; the last good one stays');
    const alarmed = new Set(alarms.map(({ field, value }) => JSON.stringify([field, value])));
    for (const field of FIELDS) {
      for (const value of NAUGHTY_VALUES.map((text) => text.slice(0, 100)))
        expect(alarmed).toContain(JSON.stringify([field, value]));
    }
    expect(alarms.every(({ level }) => level === 50)).toBe(true);
    const unreadable = log.filter(({ msg }) => msg === 'plan table cannot be read; the last good one stays');
    // Primary and worker read the table independently.
    expect(unreadable.map(({ level, worker = 0 }) => [level, worker]).sort()).toEqual([
      [50, 0],
      [50, 1],
    ]);
    expect(log.some(({ keyId, rejectedOverrides }) => keyId !== undefined && rejectedOverrides === 'minute day')).toBe(
      true,
    );
  }
});

test('a valid value is in force on all gateways within a second', () => {
  process.stdout.write(`a valid value is in force after ${liveAfterMs.map((ms) => ms.toFixed(0)).join(', ')} ms\n`);
  expect(median(liveAfterMs)).toBeLessThan(1_000);
});

test('of thousands of unknown plan fields, a thousand are logged, and only once', async () => {
  const { url } = await emptyDatabase();
  const [stack, database] = [await startStack({ REDIS_URL: url }), connectionTo(url)];
  await database.hset('gateway:plans', Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`x${at}`, '1'])));
  const lines = () => stack.log.filter(({ msg }) => msg === 'plan value rejected; the last good one stays').length;
  await expect.poll(lines).toBeGreaterThan(0);
  // Each change makes Redis return the fields in another order.
  for (let minute = 61; minute < 65; minute++) {
    expect((await stack.admin('PATCH', '/plans/free', { minute })).json).toMatchObject({ minute });
    await sleep(300);
  }
  expect(lines()).toBe(1_000);
  await database.hset('gateway:plans', 'free.minute', '60,');
  await expect.poll(() => stack.log.some(({ field }) => field === 'free.minute')).toBe(true);
});
