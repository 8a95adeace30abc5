import { describe, expect, test } from 'vitest';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctlWith, operatorOf } from '../support/ctl.ts';
import { type Answer, send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';

/** `POST /keys/{id}/reset` gives a customer a fresh start. */

const { url: redisUrl } = await emptyDatabase();

const ask = (stack: Stack, key: string): Promise<Answer> => send(`${stack.gateway}/v1/pets`, { key });

const codeOf = ({ status, json }: Answer) => (status === 200 ? 200 : (json as { code: string }).code);

const standingOf = ({ status, headers }: Answer) => [status, headers['x-ratelimit-remaining'], dayLeft(headers)];

/** The rest of the day limit, from the field of the draft. */
const dayLeft = ({ ratelimit }: Answer['headers']) => Number(/"day";r=(\d+)/.exec(String(ratelimit))?.[1]);

const BAN_SECONDS = 300;

/** A key with both buckets empty, a line, and a ban that is the first of a series. */
async function bannedKey(stack: Stack): Promise<string> {
  await stack.admin('PATCH', '/plans/free', { ban_after: 3, ban_grace_seconds: 0, ban_seconds: BAN_SECONDS });
  const key = await stack.issueKey({ name: 'stuck', minute: 4, day: 4 });
  for (let sent = 0; sent < 20; sent++) if (codeOf(await ask(stack, key)) === 'key_banned') return key;
  throw new Error('The key was not banned.');
}

const viewOf = async (stack: Stack, key: string) => (await stack.admin('GET', `/keys/${idOf(key)}`)).json;

describe.for(bothStacks(redisUrl))('with %s', ([, environment]) => {
  test('after a reset a banned key with empty buckets and a line has full limits, also after a restart', async () => {
    const DATA_DIR = await temporaryFolder();
    const stack = await startStack({ ...environment, DATA_DIR });
    const [key, other] = [await bannedKey(stack), await bannedKey(stack)];
    const before = (await viewOf(stack, key)) as Record<string, unknown>;
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
      for (let sent = 0; sent < 7; sent++) codes.push(codeOf(await ask(stack, key)));
      expect(codes).toEqual([200, 200, 200, 200, ...Array(3).fill('rate_limit_exceeded')]);
    }
    expect(codeOf(await ask(stack, key))).toBe('key_banned');
    const { bans, bannedUntil } = (await viewOf(stack, key)) as { bans: number; bannedUntil: string };
    expect([bans, Date.parse(bannedUntil) - Date.now() <= BAN_SECONDS * 1_000]).toEqual([1, true]);
  });

  test('a reset keeps the usage', async () => {
    const stack = await startStack(environment);
    const key = await bannedKey(stack);
    const usage = async () => {
      const { minutes, days } = (await stack.admin('GET', `/keys/${idOf(key)}/usage`)).json as Record<string, unknown>;
      return { minutes, days };
    };
    const before = await usage();
    await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
    expect(await usage()).toEqual(before);
    await ask(stack, key);
    expect(await viewOf(stack, key)).toMatchObject({ admitted: 5 });
  });

  test('the audit entry of a reset has the ban and the strikes that it cleared', async () => {
    const stack = await startStack(environment);
    const key = await bannedKey(stack);
    const { bannedUntil } = (await viewOf(stack, key)) as { bannedUntil: string };
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

  test('each reset leaves one audit entry, even for a key with nothing to reset', async () => {
    const stack = await startStack(environment);
    const id = idOf(await stack.issueKey());
    const path = `/keys/${id}/reset`;
    const answers = [
      await stack.admin('POST', path, { reason: 'in the body', author: 'ada' }),
      await stack.admin('POST', `${path}?reason=in%20the%20query`, {}),
      // Without a body.
      await stack.admin('POST', path),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const entries = (await activityOf(stack)).filter(({ target }) => target === id);
    expect(entries.map(({ action, reason, actor }) => [action, reason, actor])).toEqual([
      ['key.reset', '', 'unknown'],
      ['key.reset', 'in the query', 'unknown'],
      ['key.reset', 'in the body', 'ada'],
      ['key.create', '', 'unknown'],
    ]);
    const filtered = (await stack.admin('GET', `/activity?action=key.reset&target=${id}`)).json;
    expect((filtered as { activity: unknown[] }).activity).toHaveLength(3);
  });

  test('a reset of an unknown or revoked key is 404 and writes nothing', async () => {
    const stack = await startStack(environment);
    const revoked = idOf(await stack.issueKey());
    await stack.admin('DELETE', `/keys/${revoked}`);
    const before = (await activityOf(stack)).length;
    for (const id of ['000000000000', revoked, 'no-id']) {
      const answer = await stack.admin('POST', `/keys/${id}/reset`, {});
      expect([answer.status, answer.json]).toEqual([
        404,
        { code: 'not_found', message: 'There is no such key.', status: 404 },
      ]);
    }
    expect(await activityOf(stack)).toHaveLength(before);
  });

  test('ctl keys reset shows the key, and records the reason', async () => {
    const stack = await startStack(environment);
    const key = await bannedKey(stack);
    const ctl = (...words: string[]) => ctlWith(operatorOf(stack), ...words);
    const { code, out } = await ctl('--json', 'keys', 'reset', idOf(key), '--reason', 'their loop is fixed');
    expect([code, JSON.parse(out)]).toMatchObject([0, { state: 'active', buckets: { day: { used: 0 } } }]);
    expect(standingOf(await ask(stack, key))).toEqual([200, '3', 3]);
    expect((await activityOf(stack))[0]).toMatchObject({
      action: 'key.reset',
      target: idOf(key),
      reason: 'their loop is fixed',
      via: 'cli',
    });
    expect(await ctl('keys', 'reset', '000000000000')).toMatchObject({ code: 3 });
    expect((await ctl('keys', 'reset', '--help')).out).toContain('Example:\n  ctl keys reset 4fXk20LmQa9z');
  });
});

test('a reset without Redis is 503 and has changed nothing once Redis is back', async () => {
  const server = await startRedisServer({ appendonly: 'yes', dir: await temporaryFolder() });
  cleanUp(server.stop);
  const stack = await startStack({ REDIS_URL: server.url });
  const key = await bannedKey(stack);
  await server.stop();
  const answer = await stack.admin('POST', `/keys/${idOf(key)}/reset`, {});
  expect([answer.status, answer.json]).toEqual([
    503,
    { code: 'unavailable', message: expect.any(String), status: 503 },
  ]);
  await server.restart();
  await expect.poll(() => viewOf(stack, key)).toMatchObject({ state: 'banned', bans: 1 });
  expect((await activityOf(stack)).map(({ action }) => action)).not.toContain('key.reset');
});
