import { createHash, randomInt } from 'node:crypto';
import { expect, test } from 'vitest';
import { decide, peek } from '../../gateway/access/decide.ts';
import { FRESH, type KeyRecord, type KeyState } from '../../gateway/access/keys.ts';
import { PLAN_FIELDS, PLAN_NAMES, type PlanName } from '../../gateway/access/plans.ts';
import { banFields, keyOf, toFields } from '../../gateway/access/redis/key-hash.ts';
import { runDecide } from '../../gateway/access/redis/script.ts';
import type { Verdict } from '../../gateway/access/verdict.ts';
import type { ModelRecord } from '../support/decision-model.ts';
import { type Plans, randomWorld, type Step, type World } from '../support/decision-worlds.ts';
import { redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { thoroughly } from '../support/thorough.ts';

/** The embedded limiter and decide.lua against a model of their rules that shares no code with them. */

const { url } = await emptyDatabase();
const { redis } = await redisUnderTest(url);
const DECISIONS = thoroughly(1_000_000, 60_000);
const A_WORLD = 400;

const toRecord = ({ isDisabled, oldSecret, ...record }: Partial<ModelRecord>): Partial<KeyRecord> => ({
  ...record,
  plan: record.plan as PlanName,
  ...(isDisabled === undefined ? {} : { disabled: isDisabled }),
  ...(oldSecret === undefined ? {} : { oldSecret: oldSecret.secret, oldSecretUntil: oldSecret.until }),
});

/** A verdict in the words of decide.lua. */
function inWords(verdict: Verdict): string {
  if (!('buckets' in verdict)) return verdict.reason;
  const { outcome, isShadowed, plan, now, buckets, bannedUntil, retryAt, endsAt } = verdict;
  const levels = buckets.flatMap(({ limit, tokens, parts }) => [limit, tokens, parts]);
  return [isShadowed ? 'shadowed' : outcome, plan, now, ...levels, bannedUntil, retryAt, endsAt].join(' ');
}

function* embedded({ record, steps }: World): Generator<string[]> {
  let held = { name: '', createdAt: 0, ...toRecord(record) } as KeyRecord;
  let state: KeyState = FRESH;
  for (const step of steps) {
    if (step.type === 'record') {
      const { plan: _plan, ...changes } = toRecord(step.changes);
      held = { ...held, ...changes };
    } else if (step.type === 'ban') {
      state = { ...state, bannedUntil: step.until, banReason: { text: '', until: step.until } };
    } else if (step.type === 'lift') {
      state = { ...state, bannedUntil: 0, bans: 0, queue: undefined, banReason: undefined };
    } else {
      const { count, now, secret, plans } = step;
      const said: string[] = [];
      if (count === 0) said.push(inWords(peek(held, state, secret, plans, now)));
      for (let sent = 0; sent < count; sent++) {
        const decided = decide(held, state, secret, plans, now);
        state = decided.state ?? state;
        said.push(inWords(decided.verdict));
      }
      yield said;
    }
  }
}

const planText = (plans: Plans): string =>
  PLAN_NAMES.map(
    (name) => `\n${name} ${[...PLAN_FIELDS, 'mode' as const].map((f) => plans[name][f] ?? '-').join(' ')}`,
  ).join('');

/** Sends all of a history before it waits for the first reply: Redis keeps the order of one connection. */
async function inRedis({ record, steps }: World, id: string): Promise<string[][]> {
  const key = keyOf(id);
  const faults: Promise<unknown>[] = [];
  const write = (fields: Readonly<Record<string, string | undefined>>) => {
    const gone = Object.keys(fields).filter((field) => fields[field] === undefined);
    const set = Object.entries(fields).filter((field): field is [string, string] => field[1] !== undefined);
    if (gone.length > 0) faults.push(redis.hdel(key, ...gone));
    if (set.length > 0) faults.push(redis.hset(key, Object.fromEntries(set)));
  };
  const replies: Promise<string[]>[] = [];
  write(toFields(toRecord(record)));
  for (const step of steps) {
    if (step.type === 'record') {
      const { plan: _plan, ...changes } = toRecord(step.changes);
      write(toFields(changes));
    } else if (step.type === 'ask') {
      const { now, plans, secret, count } = step;
      replies.push(runDecide(redis, 1, [key, String(now), planText(plans), secret, String(count)]));
    } else write(banFields(step.type === 'lift' ? 'lift' : { text: '', until: step.until }));
  }
  const said = await Promise.all(replies);
  await Promise.all([...faults, redis.del(key)]);
  return said;
}

type Ask = Extract<Step, { type: 'ask' }>;

/** Where the two part: the steps up to there would be long to read, and can be made again from the seed. */
function firstDifference(asks: readonly Ask[], said: readonly (readonly string[])[]): string | undefined {
  const at = asks.findIndex((ask, index) => ask.said.join() !== said[index]?.join());
  return at === -1 ? undefined : `step ${at}: ${JSON.stringify({ ...asks[at], found: said[at] }, undefined, 1)}`;
}

const ALL_RULES = [
  'admitted',
  'shadowed',
  'refused',
  'banned',
  'unknown',
  'disabled',
  'expired',
  'misconfigured',
  'peek admitted',
  'peek refused',
  'peek banned',
  'in line',
  'line pulled forward',
  'line of the other bucket',
  'behind the line',
  'beyond the line',
  'came when told',
  'early and not counted',
  'early requests forgotten',
  'on notice',
  'held on notice',
  'group set apart',
  'one group set apart at a time',
  'ban doubled',
  'queue forgotten',
  'set back with a queue',
  'set back while banned',
  'set back while banned by hand',
];

test(`both limiters say what the model says, ${DECISIONS} times, and every rule is met`, {
  timeout: 1_200_000,
}, async () => {
  const met = new Set<string>();
  const from = randomInt(1_000_000_000);
  let decisions = 0;
  for (let seed = from; decisions < DECISIONS; seed++) {
    const world = randomWorld(seed, A_WORLD, met);
    const asks = world.steps.filter((step) => step.type === 'ask');
    decisions += asks.reduce((sum, { said }) => sum + said.length, 0);
    const id = createHash('sha256').update(String(seed)).digest('hex').slice(0, 12);
    expect(firstDifference(asks, [...embedded(world)]), `embedded, seed ${seed}`).toBeUndefined();
    expect(firstDifference(asks, await inRedis(world, id)), `decide.lua, seed ${seed}`).toBeUndefined();
  }
  expect(ALL_RULES.filter((rule) => !met.has(rule))).toEqual([]);
});
