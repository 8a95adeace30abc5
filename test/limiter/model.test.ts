import { createHash, randomInt } from 'node:crypto';
import { expect, test } from 'vitest';
import { credentialOf, SCOPES, type Secret } from '../../gateway/limiter/credential.ts';
import { decide } from '../../gateway/limiter/decide.ts';
import { FRESH, type KeyRecord, type KeyState } from '../../gateway/limiter/key-record.ts';
import type { Verdict } from '../../gateway/limiter/limiter.ts';
import { addressDigits, parseNetwork } from '../../gateway/limiter/networks.ts';
import { type PlanName, planText } from '../../gateway/limiter/plans.ts';
import { NO_REFUSALS } from '../../gateway/limiter/refusals.ts';
import { writeRecord } from '../../gateway/stores/key-hash.ts';
import { writeBan } from '../../gateway/stores/key-state.ts';
import { keyOf, runDecide } from '../../gateway/stores/redis/calls.ts';
import { readTime } from '../../gateway/stores/storage.ts';
import { readReply } from '../support/decide-reply.ts';
import type { ModelRecord, ModelSecret, ModelUse } from '../support/decision-model.ts';
import { randomWorld, type Step, type World } from '../support/decision-worlds.ts';
import { redisUnderTest } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { thoroughly } from '../support/thorough.ts';

/** Compares the embedded limiter and decide.lua with a model of their rules that shares no code with them. */

const { url } = await emptyDatabase();
const { redis } = await redisUnderTest(url);
/** Made with the same seeds in each run, which cover every rule. */
const COVERING = 31_000;
/** CI adds seeds that differ in each run. */
const DECISIONS = COVERING + thoroughly(69_000, 0);
const A_WORLD = 400;

const toRecord = ({ isDisabled, secrets, ...record }: Partial<ModelRecord>): Partial<KeyRecord> => ({
  ...record,
  plan: record.plan as PlanName,
  ...(isDisabled === undefined ? {} : { disabled: isDisabled }),
  ...(secrets === undefined ? {} : { secrets: Object.entries(secrets).map(toSecret) }),
});

const toSecret = ([digest, { until, scope, networks }]: [string, ModelSecret]): Secret =>
  secretWith(digest, {
    expiresAt: until,
    scope: scope === undefined ? SCOPES : [scope],
    networks: (networks ?? []).map((network) => parseNetwork(network) as string),
  });

/** Converts a reply to the format of the model, which does not cover restrictions on secrets. */
function withoutBounds(reply: string): string {
  const read = readReply(reply);
  if (read === undefined) return reply;
  const { outcome, plan, now, buckets, bannedUntil, retryAt, endsAt } = read;
  const levels = buckets.flatMap(({ limit, tokens, fraction }) => [limit, tokens, fraction]);
  return [outcome, plan, now, ...levels, bannedUntil, retryAt, endsAt].join(' ');
}

const presented = ({ secret, scope, address }: ModelUse) => credentialOf('', secret, { scope, address });

/** A verdict in decide.lua's format. */
function inWords(verdict: Verdict): string {
  if (verdict.outcome === 'unauthorized' && verdict.reason === 'expired' && !verdict.isOfKey) return 'ended';
  if (!('buckets' in verdict)) return verdict.reason;
  const { outcome, isShadowed, plan, now, buckets, bannedUntil, retryAt, endsAt } = verdict;
  const levels = buckets.flatMap(({ limit, tokens, fraction }) => [limit, tokens, fraction]);
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
      state = { ...state, bannedUntil: 0, bans: 0, refusals: NO_REFUSALS, banReason: undefined };
    } else {
      const { count, now, use, plans } = step;
      const secret = presented(use);
      const said: string[] = [];
      if (count === 0) said.push(inWords(decide(held, state, secret, plans[held.plan], now, false).verdict));
      for (let sent = 0; sent < count; sent++) {
        const decided = decide(held, state, secret, plans[held.plan], now);
        state = decided.state ?? state;
        said.push(inWords(decided.verdict));
      }
      const { lineUntil, strikesUntil, fullAt } = state.refusals;
      yield [...said, `${lineUntil} ${strikesUntil} ${fullAt}`];
    }
  }
}

/** Sends the whole history before it waits for the first reply, because Redis keeps the order of a connection. */
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
  let { secrets = [] } = toRecord(record);
  write({ ...writeRecord(toRecord(record)), ok_secrets: '-' });
  for (const step of steps) {
    if (step.type === 'record') {
      const { plan: _plan, ...changes } = toRecord(step.changes);
      write(writeRecord(changes, secrets));
      secrets = changes.secrets ?? secrets;
    } else if (step.type === 'ask') {
      const { now, plans, use, count } = step;
      const asked = `${count} ${use.scope ?? '-'} ${addressDigits(use.address) || '-'}`;
      const reply = runDecide(redis, 1, [key, String(now), planText(plans), use.secret, asked]);
      const remembered = redis.hget(key, 'refusals');
      replies.push(
        Promise.all([reply, remembered]).then(([said, times]) => [
          ...said.map(withoutBounds),
          (times ?? '0 0 0')
            .split(' ')
            .map((time) => readTime(time) ?? 0)
            .join(' '),
        ]),
      );
    } else write(writeBan(step.type === 'lift' ? 'lift' : { text: '', until: step.until }));
  }
  const said = await Promise.all(replies);
  await Promise.all([...faults, redis.del(key)]);
  return said;
}

/** @returns only the first difference, because the seed reproduces the steps before it */
function firstDifference(
  asks: readonly Extract<Step, { type: 'ask' }>[],
  said: readonly (readonly string[])[],
): string | undefined {
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
  'ended',
  'expired',
  'elsewhere',
  'forbidden',
  'misconfigured',
  'peek admitted',
  'peek refused',
  'peek banned',
  'at the next token',
  'behind those in line',
  'beyond the places in line',
  'line longer than an hour',
  'a token before those in line',
  'line forgotten',
  'strikes forgotten',
  'strikes at another limit',
  'places in line kept after the minute limit was raised',
  'refused under a higher limit',
  'places in line kept after the day limit was raised',
  'strikes clamped',
  'full, but within the grace period',
  'ban doubled',
  'ban ignored in shadow mode',
  'raised meanwhile',
  'set back with refusals',
  'set back while banned',
  'set back while banned by hand',
];

test(`both limiters agree with the model on ${DECISIONS} decisions that cover every rule`, {
  timeout: 1_200_000,
}, async () => {
  const met = new Set<string>();
  const from = randomInt(1_000_000_000);
  let decisions = 0;
  for (let more = 1; decisions < DECISIONS; more++) {
    const seed = decisions < COVERING ? more : from + more;
    const world = randomWorld(seed, A_WORLD, met);
    const asks = world.steps.filter((step) => step.type === 'ask');
    decisions += asks.reduce((sum, { said }) => sum + said.length - 1, 0);
    const id = createHash('sha256').update(String(seed)).digest('hex').slice(0, 12);
    expect(firstDifference(asks, [...embedded(world)]), `embedded, seed ${seed}`).toBeUndefined();
    expect(firstDifference(asks, await inRedis(world, id)), `decide.lua, seed ${seed}`).toBeUndefined();
  }
  expect(ALL_RULES.filter((rule) => !met.has(rule))).toEqual([]);
});
