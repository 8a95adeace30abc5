import { describe, expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { ctl, ctlWith, operatorOf } from '../support/ctl.ts';
import { scrape } from '../support/metrics.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';

const { url: REDIS_URL, redis } = await emptyDatabase();
const onRedis = { REDIS_URL, REDIS_TIMEOUT_MS: '5000' };

const told = async ({ adminUrl }: Stack) => (await scrape(adminUrl)).sum('gateway_backup_completed_timestamp_seconds');

const findingOf = async (stack: Stack) =>
  ((await stack.admin('GET', '/doctor')).json as DoctorAnswer).findings.find(({ about }) => about === 'backup');

describe.for([
  ['the embedded limiter', async () => ({ DATA_DIR: await temporaryFolder() })],
  ['Redis', async () => onRedis],
] as const)('with %s', ([, settings]) => {
  test('the time of the last complete backup is exported, also by other gateways and after a restart', async () => {
    const environment: Record<string, string> = await settings();
    const stack = await startStack(environment);
    expect([await told(stack), await findingOf(stack)]).toEqual([undefined, undefined]);
    await stack.issueKey();
    expect(await told(stack)).toBe(0);
    expect(await findingOf(stack)).toMatchObject({ status: 'warning', found: 'the keys have never been backed up' });

    const begun = Math.floor(Date.now() / 1_000);
    expect(await ctl(stack, 'backup')).toMatchObject({ code: 0, err: '' });
    const at = (await told(stack)) ?? 0;
    expect(at).toBeGreaterThanOrEqual(begun);
    expect(at).toBeLessThanOrEqual(Date.now() / 1_000);
    expect(await findingOf(stack)).toMatchObject({
      status: 'good',
      found: `the last complete one was made at ${new Date(at * 1_000).toISOString()}`,
    });
    await stack.stop();
    expect(await told(await startStack(environment))).toBe(at);
  });
});

test('a backup that is incomplete or has no key is not recorded', async () => {
  const stack = await startStack();
  await ctl(stack, 'backup');
  await stack.issueKey();
  await stack.issueKey();
  const { json } = await stack.admin('GET', '/backup?limit=1');
  expect(json).toMatchObject({ next: expect.any(String) });
  expect((await stack.admin('POST', '/backups', { keys: 0 })).status).toBe(400);
  expect((await stack.admin('POST', '/backups', {})).status).toBe(400);
  expect(await told(stack)).toBe(0);
});

test('a viewer can make a backup and is informed that it is not recorded', async () => {
  const stack = await startStack();
  await stack.issueKey();
  const { token } = (await stack.admin('POST', '/tokens', { name: 'ann', role: 'viewer' })).json as { token: string };
  const { code, out, err } = await ctlWith({ ...operatorOf(stack), ADMIN_TOKEN: token }, 'backup');
  expect([code, out.trimEnd().split('\n').at(-1)]).toEqual([0, '{"end":true,"keys":1}']);
  expect(err).toContain('The gateway could not record this backup: This needs the role operator');
  expect(await told(stack)).toBe(0);
});

test('a last backup that is older than 26 hours is a finding of the doctor', async () => {
  await redis.flushdb();
  const stack = await startStack(onRedis);
  const hoursAgo = (hours: number) => Math.floor(Date.now() / 1_000) - hours * 3_600;
  await redis.hset('gateway:backup', 'completed_at', hoursAgo(25));
  expect(await findingOf(stack)).toMatchObject({ status: 'good' });
  await redis.hset('gateway:backup', 'completed_at', hoursAgo(27));
  expect(await findingOf(stack)).toMatchObject({ status: 'warning', advice: expect.stringContaining('ctl backup') });
});
