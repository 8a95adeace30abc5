import { hostname } from 'node:os';
import { describe, expect, test } from 'vitest';
import type { DecisionsAnswer, RequestsAnswer } from '../../gateway/operators/api/answers.ts';
import { type DecisionReport, newestFirst } from '../../gateway/telemetry/decision-report.ts';
import { digestIn, idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { askOnce as ask, get, operatorsRedis } from '../support/operators.ts';
import { ownRedis } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url, fresh } = await operatorsRedis();

const explained = async (stack: Stack, id: string) => (await get<DecisionsAnswer>(stack, `/decisions/${id}`)).decisions;

/** Only the day limit of 1 is reached. Its token does not refill during the test. */
const tight = { plan: 'free', minute: 1_000, day: 1 };

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test('an explanation has the plan, the buckets before and after, the cause of the refusal, the time and the gateway', async () => {
    const stack = await fresh(environment);
    const key = await stack.issueKey(tight);
    const [admitted, refused] = [await ask(stack, key), await ask(stack, key)];
    const version = (await stack.admin('GET', '/plans')).headers.etag?.replaceAll('"', '');
    expect(await explained(stack, admitted.id)).toEqual([
      {
        requestId: admitted.id,
        keyId: idOf(key),
        outcome: 'admitted',
        plan: 'free',
        planVersion: version,
        mode: 'shared',
        at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/),
        buckets: { minute: { limit: 1_000, before: 1_000, after: 999 }, day: { limit: 1, before: 1, after: 0 } },
        gateway: { host: hostname(), pid: process.pid },
      },
    ]);
    const [why] = (await explained(stack, refused.id)) as [DecisionReport];
    expect(why).toMatchObject({ outcome: 'refused', refusedBy: ['day'], buckets: { day: { limit: 1 } } });
    const { minute, day } = why.buckets as NonNullable<DecisionReport['buckets']>;
    expect([minute.before, day.before]).toEqual([minute.after, day.after]);
    expect(day.after).toBeLessThan(1);
    expect(Math.abs(Date.parse(why.at as string) - Date.now())).toBeLessThan(60_000);
    // X-RateLimit-Reset is the time at which the missing part of the bucket will have refilled.
    const missing = (1 - day.after) * 86_400_000;
    const fullAt = Number(refused.headers['x-ratelimit-reset']) * 1_000;
    expect(Math.abs(Date.parse(why.at as string) + missing - fullAt)).toBeLessThan(1_500);
  });

  test('an expired key and an expired secret are told apart, and clients see the same refusal', async () => {
    const stack = await fresh(environment);
    const key = await stack.issueKey();
    const added = await stack.admin('POST', `/keys/${idOf(key)}/secrets`, {
      name: 'short',
      expiresAt: new Date(Date.now() + 300).toISOString(),
    });
    await new Promise((resolve) => setTimeout(resolve, 400));
    const ofSecret = await ask(stack, (added.json as { key: string }).key);
    await stack.admin('PATCH', `/keys/${idOf(key)}`, { expiresAt: '2020-01-01T00:00:00Z' });
    const ofKey = await ask(stack, key);
    expect([ofKey.status, ofKey.text]).toEqual([401, ofSecret.text]);
    const whyOf = async ({ id }: typeof ofKey) => {
      const [{ outcome, reason, advice } = {}] = (await get<RequestsAnswer>(stack, `/requests?q=${id}`)).requests;
      return [outcome, reason, advice];
    };
    await expect
      .poll(() => whyOf(ofKey))
      .toEqual(['expired', 'The key has expired.', 'Extend its expiry, or issue a new key.']);
    await stack.admin('PATCH', `/keys/${idOf(key)}`, { expiresAt: null });
    const secret = ['expired', 'The secret has expired.', 'Extend its expiry, or add a new secret.'];
    expect(await whyOf(ofSecret)).toEqual(secret);
    expect((await whyOf(ofKey))[1]).toBe('The key or the secret had expired.');
  });

  test('bans, shadow refusals and disabled keys are explained, and requests with unknown keys are not', async () => {
    const stack = await fresh(environment);
    const key = await stack.issueKey(tight);
    await stack.admin('PATCH', '/plans/free', { mode: 'shadow' });
    await ask(stack, key);
    const shadowed = await ask(stack, key);
    expect(await explained(stack, shadowed.id)).toMatchObject([
      { outcome: 'admitted', shadow: 'rate_limit_exceeded', refusedBy: ['day'] },
    ]);
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600, reason: 'test' });
    const banned = await ask(stack, key);
    expect(await explained(stack, banned.id)).toMatchObject([
      { outcome: 'banned', refusedBy: ['ban'], bannedUntil: expect.any(String) },
    ]);
    const disabled = await stack.issueKey();
    await stack.admin('PATCH', `/keys/${idOf(disabled)}`, { disabled: true });
    const off = await ask(stack, disabled);
    expect(await explained(stack, off.id)).toMatchObject([{ outcome: 'disabled', keyId: idOf(disabled) }]);
    const gone = await stack.issueKey();
    await stack.admin('DELETE', `/keys/${idOf(gone)}`);
    const unknown = await ask(stack, gone);
    expect(unknown.status).toBe(401);
    const answer = await stack.admin('GET', `/decisions/${unknown.id}`);
    expect([answer.status, answer.json]).toEqual([404, expect.objectContaining({ code: 'not_found' })]);
  });

  test('the explanation of a key has its state and its last decisions, newest first, but no secrets', async () => {
    const stack = await fresh(environment);
    const [key, other] = [await stack.issueKey(tight), await stack.issueKey()];
    const asked = [await ask(stack, key), await ask(stack, key), await ask(stack, other)];
    const { status, json, text } = await stack.admin('GET', `/keys/${idOf(key)}/explain`);
    expect(status).toBe(200);
    expect(json).toMatchObject({
      key: { id: idOf(key), state: 'active', buckets: { day: { limit: 1, remaining: 0 } } },
      planVersion: expect.stringMatching(/^[0-9a-f]{16}$/),
      decisions: [{ requestId: asked[1]?.id }, { requestId: asked[0]?.id }],
    });
    expect((json as { decisions: unknown[] }).decisions).toHaveLength(2);
    // A request without a decision is not listed.
    await ask(stack, key, '/v1/limits');
    const last = await stack.admin('GET', `/keys/${idOf(key)}/explain?limit=1`);
    expect(last.json).toMatchObject({ decisions: [{ requestId: asked[1]?.id }] });
    for (const whole of [key, other])
      for (const hidden of [whole.slice(16), digestIn(whole)]) expect(text).not.toContain(hidden);
    expect((await stack.admin('GET', '/keys/000000000000/explain')).status).toBe(404);
  });
});

test('a local decision is marked as local', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '1000' });
  const key = await stack.issueKey();
  await ask(stack, key);
  await server.stop();
  const { id } = await ask(stack, key);
  expect(await explained(stack, id)).toMatchObject([{ outcome: 'admitted', mode: 'local', plan: 'free' }]);
});

test('simultaneous decisions stay in order in a merged list', () => {
  const reportOf = (requestId: string, at: string) => ({ requestId, at }) as DecisionReport;
  const [first, second] = [reportOf('1', '2026-01-01'), reportOf('2', '2026-01-02')];
  const sameTime = Array.from({ length: 30 }, (_, at) => reportOf(`same ${at}`, '2026-01-03'));
  expect([first, ...sameTime, second].sort(newestFirst)).toEqual([...sameTime, second, first]);
});

test('ctl explains a key or a request', async () => {
  const stack = await fresh();
  const key = await stack.issueKey(tight);
  await ask(stack, key);
  const { id } = await ask(stack, key);
  const explain = (...words: string[]) => ctl(stack, 'keys', 'explain', ...words);
  const [ofKey, ofRequest, json, missing] = await Promise.all([
    explain(idOf(key)),
    explain('--request', id),
    explain('--request', id, '--json'),
    explain('--request', 'nobody-sent-this'),
  ]);
  expect(ofKey.out).toMatch(
    new RegExp(`^state +active$.*Z +refused +day +\\S+ -> \\S+ +0\\S* -> 0\\S* +shared +${id}$`, 'ms'),
  );
  expect(ofRequest.out).toMatch(/^refused by {8}day$.*^plan {14}free, table version [0-9a-f]{16}$/ms);
  expect(ofRequest.out).toMatch(new RegExp(`^gateway {11}${hostname()}, process ${process.pid}$`, 'm'));
  expect(JSON.parse(json.out)).toMatchObject({ decisions: [{ requestId: id, refusedBy: ['day'] }] });
  expect([missing.code, missing.err]).toEqual([
    3,
    expect.stringContaining('No gateway remembers a decision on this request.'),
  ]);
});
