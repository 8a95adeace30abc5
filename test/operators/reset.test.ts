import { describe, expect, test } from 'vitest';
import type { KeyUsageAnswer } from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import type { Answer } from '../support/http.ts';
import { ask, codeOf, get, viewOf } from '../support/operators.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** `POST /keys/{id}/reset` gives a customer a fresh start. */

const { url: redisUrl } = await emptyDatabase();

const standingOf = ({ status, headers }: Answer) => [status, headers['x-ratelimit-remaining'], dayLeft(headers)];

/** The rest of the day limit, from the field of the draft. */
const dayLeft = ({ ratelimit }: Answer['headers']) => Number(/"day";r=(\d+)/.exec(String(ratelimit))?.[1]);

const BAN_SECONDS = 300;

/** A key with both buckets empty, a line, and a ban that is the first of a series. */
async function bannedKey(stack: Stack): Promise<string> {
  await stack.admin('PATCH', '/plans/free', { ban_after: 3, ban_grace_seconds: 0, ban_seconds: BAN_SECONDS });
  const key = await stack.issueKey({ name: 'stuck', minute: 4, day: 4 });
  for (let sent = 0; sent < 20; sent++) if ((await codeOf(stack, key)) === 'key_banned') return key;
  throw new Error('The key was not banned.');
}

describe.for(bothStacks(redisUrl))('with %s', ([, environment]) => {
  test('after a reset a banned key with empty buckets and a line has full limits, also after a restart', async () => {
    const DATA_DIR = await temporaryFolder();
    const stack = await startStack({ ...environment, DATA_DIR });
    const [key, other] = [await bannedKey(stack), await bannedKey(stack)];
    const before = await viewOf(stack, idOf(key));
    expect(before).toMatchObject({ state: 'banned', bans: 1, buckets: { day: { remaining: 0 } } });
    const reset = await stack.admin('POST', `/keys/${idOf(key)}/reset`, { reason: 'their loop is fixed' });
    const full = (limit: number) => ({ limit, remaining: limit, used: 0 });
    const { admitted, refused, lastUsedAt } = before;
    expect([reset.status, reset.json]).toEqual([
      200,
      expect.objectContaining({
        ...{ state: 'active', bans: 0, admitted, refused, lastUsedAt },
        buckets: { minute: full(4), day: full(4) },
      }),
    ]);
    expect(standingOf(await ask(stack, key))).toEqual([200, '3', 3]);
    await stack.admin('POST', `/keys/${idOf(other)}/reset`, {});
    await stack.stop();
    const again = await startStack({ ...environment, DATA_DIR });
    expect(standingOf(await ask(again, other))).toEqual([200, '3', 3]);
    expect(dayLeft((await ask(again, key)).headers)).toBe(2);
  });

  test('a reset clears strikes and series, so the next ban takes as many refusals and is as long as the first', async () => {
    const stack = await startStack(environment);
    const key = await bannedKey(stack);
    // First of a ban, then of strikes alone.
    for (let round = 0; round < 2; round++) {
      await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
      const codes: unknown[] = [];
      for (let sent = 0; sent < 7; sent++) codes.push(await codeOf(stack, key));
      expect(codes).toEqual([200, 200, 200, 200, ...Array(3).fill('rate_limit_exceeded')]);
    }
    expect(await codeOf(stack, key)).toBe('key_banned');
    const { bans, bannedUntil = '' } = await viewOf(stack, idOf(key));
    expect([bans, Date.parse(bannedUntil) - Date.now() <= BAN_SECONDS * 1_000]).toEqual([1, true]);
  });

  test('a reset keeps the usage', async () => {
    const stack = await startStack(environment);
    const key = await bannedKey(stack);
    const usage = async () => {
      const { minutes, days } = await get<KeyUsageAnswer>(stack, `/keys/${idOf(key)}/usage`);
      return { minutes, days };
    };
    const before = await usage();
    await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
    expect(await usage()).toEqual(before);
    await ask(stack, key);
    expect(await viewOf(stack, idOf(key))).toMatchObject({ admitted: 5 });
  });

  test('the audit entry of a reset has the ban and the strikes that it cleared', async () => {
    const stack = await startStack(environment);
    const key = await bannedKey(stack);
    const { bannedUntil } = await viewOf(stack, idOf(key));
    const changes = async (path: string) => {
      await stack.admin('POST', `/keys/${idOf(key)}/${path}`, {});
      return (await activityOf(stack, `?target=${idOf(key)}&limit=1`))[0]?.changes;
    };
    const refusals = { field: 'refusals', from: 'remembered' };
    expect(await changes('reset')).toEqual([{ field: 'bannedUntil', from: bannedUntil }, refusals]);
    expect(await changes('reset')).toEqual([]);
    for (let sent = 0; sent < 6; sent++) await ask(stack, key);
    expect(await changes('reset')).toEqual([refusals]);
  });
});

test('ctl keys reset shows the key, and records the reason', async () => {
  const stack = await startStack();
  const key = await bannedKey(stack);
  const { code, out } = await ctl(stack, '--json', 'keys', 'reset', idOf(key), '--reason', 'their loop is fixed');
  expect([code, JSON.parse(out)]).toMatchObject([0, { state: 'active', buckets: { day: { used: 0 } } }]);
  const entry = { action: 'key.reset', target: idOf(key), reason: 'their loop is fixed', via: 'cli' };
  expect((await activityOf(stack))[0]).toMatchObject(entry);
  expect(await ctl(stack, 'keys', 'reset', '000000000000')).toMatchObject({ code: 3 });
  expect((await ctl(stack, 'keys', 'reset', '--help')).out).toContain('Example:\n  ctl keys reset 4fXk20LmQa9z');
});
