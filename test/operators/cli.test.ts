import { expect, test } from 'vitest';
import type { ActivityAnswer } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlWith, operatorOf } from '../support/ctl.ts';
import { bareCore } from '../support/faulty-core.ts';
import { ask, issueId, operatorsRedis, statusOf } from '../support/operators.ts';
import { startStack } from '../support/stack.ts';

const { redis, fresh } = await operatorsRedis();

/** A gateway with a generated token, which ctl finds in its folder. */
const stack = await startStack({ ADMIN_TOKEN: '' });
const local = { ADMIN_PORT: new URL(stack.adminUrl).port, DATA_DIR: stack.directory };
const run = (words: string) => ctlWith(local, ...words.split(' '));

test('ctl issues, lists and revokes a key', async () => {
  const created = await run('keys create --plan pro --name acme');
  expect(created).toMatchObject({ code: 0, err: '' });
  const key = /^as_\w+$/m.exec(created.out)?.[0] ?? '';
  const id = idOf(key);
  expect((await ask(stack, key)).headers['x-ratelimit-limit']).toBe('300');

  const listed = await run('keys list');
  expect(listed.out).toMatch(new RegExp(`^${id}  acme  pro  +active .* 1 +0 `, 'm'));
  expect(listed.out).not.toContain(key);

  expect(await run(`keys revoke ${id} --yes`)).toMatchObject({ code: 0, out: `Revoked ${id}.\n` });
  expect(await statusOf(stack, key)).toBe(401);
  const again = await run(`keys revoke ${id} --yes`);
  expect(again).toMatchObject({ code: 3, out: '', err: 'There is no such key.\n' });
});

test('ctl shows and changes plans', async () => {
  const set = await run('plans set business --minute 2000 --ban-after 5');
  expect(set).toMatchObject({ code: 0, err: expect.stringMatching(/^business\.minute +1000 -> 2000$/m) });
  expect((await run('plans show')).out).toMatch(/^business +2000 +100000 +5 +30 +300 .*enforce$/m);
  expect(JSON.parse((await run('--json plans show')).out)).toMatchObject({
    business: { minute: 2_000, day: 100_000, ban_after: 5 },
  });
  const back = await run('plans set business --minute 1000 --ban-after none');
  expect(back).toMatchObject({ code: 0, err: expect.stringMatching(/^business\.ban_after +5 -> none$/m) });
  expect((await run('plans show')).out).toMatch(/^business +1000 +100000 +5 × minute +30 +300 .*enforce$/m);
});

test('an enterprise key is created with its own limits', async () => {
  const created = await run('--json keys create --plan enterprise --name big --minute 5 --day 50');
  expect(JSON.parse(created.out)).toMatchObject({ plan: 'enterprise', minute: 5, day: 50, state: 'active' });
});

test('ctl activity shows who did what to a key, and why', async () => {
  const stack = await startStack();
  const id = await issueId(stack, { name: 'acme' });
  expect((await ctl(stack, 'keys', 'set', id, '--plan', 'pro', '--reason', 'they have paid')).code).toBe(0);
  expect((await ctl(stack, 'keys', 'disable', id, '--reason', '=1+1')).code).toBe(0);
  await ctl(stack, 'plans', 'set', 'free', '--minute', '61', '--author', 'ada', '--reason', 'launch', '--yes');

  const { code, out } = await ctl(stack, 'activity', '--target', id, '--action', 'key.change');
  const [head, newest, oldest] = out.split('\n').map((line) => line.split(/ {2,}/).slice(1));
  expect([code, head]).toEqual([0, ['actor', 'action', 'target', 'via', 'changes', 'reason']]);
  expect(newest).toEqual([expect.any(String), 'key.change', `${id} (acme)`, 'cli', 'disabled true', '=1+1']);
  expect(oldest?.slice(1)).toEqual(['key.change', `${id} (acme)`, 'cli', 'plan free -> pro', 'they have paid']);
  expect(newest?.[0]).not.toBe('unknown');
  for (const [target, actions] of [
    ['ACME', ['key.change', 'key.change', 'key.create']],
    ['FREE', ['plan.change']],
  ] as const) {
    const found = JSON.parse((await ctl(stack, '--json', 'activity', '--target', target)).out) as ActivityAnswer;
    expect(found.activity.map(({ action }) => action)).toEqual(actions);
  }

  const asJson = await ctl(stack, '--json', 'activity', '--limit', '1');
  expect(JSON.parse(asJson.out)).toMatchObject({
    activity: [{ actor: 'ada', action: 'plan.change', reason: 'launch' }],
  });

  const lines = (await ctl(stack, 'activity', '--csv')).out.split('\r\n');
  expect(lines[0]).toBe('at,actor,action,target,via,changes,reason,requestId,token,id,targetName');
  expect(lines).toHaveLength(6);
  // A spreadsheet must not interpret a reason as a formula.
  expect(lines[2]).toContain(`,disabled true,'=1+1,`);
});

test('ctl activity exports all entries, across all pages', async () => {
  const stack = await fresh();
  await stack.issueKey();
  const [[, entry = []] = []] = await redis.xrange('gateway:activity', '-', '+');
  const more = redis.pipeline();
  for (let made = 1; made < 1_101; made++) more.xadd('gateway:activity', '*', ...entry);
  await more.exec();
  const { out } = await ctl(stack, 'activity', '--csv');
  expect(out.trim().split('\r\n')).toHaveLength(1 + 1_101);
  expect((await ctl(stack, 'activity')).out.trim().split('\n')).toHaveLength(1 + 50);
});

test('ctl tokens creates, lists and revokes tokens, and the name of a token is the actor', async () => {
  const stack = await startStack();
  const made = await ctl(stack, 'tokens', 'create', '--name', 'ann', '--role', 'operator');
  const [, id = '', token = ''] = /^Token (\w+) of ann, operator[\s\S]*\n(op_\S+)\n$/.exec(made.out) ?? [];
  expect(token).toContain(`op_${id}_`);
  expect((await ctl(stack, 'tokens', 'list')).out).toMatch(new RegExp(`^${id}  ann   operator  \\d{4}-`, 'm'));

  const asAnn = { ...operatorOf(stack), ADMIN_TOKEN: token };
  expect((await ctlWith(asAnn, 'keys', 'create', '--plan', 'free', '--name', 'a')).code).toBe(0);
  expect((await ctl(stack, 'activity', '--actor', 'ann')).out).toContain('key.create');
  const beyond = await ctlWith(asAnn, 'tokens', 'revoke', id, '--yes');
  expect(beyond).toMatchObject({ code: 1, err: 'This needs the role admin; the token has the role operator.\n' });

  expect((await ctl(stack, 'tokens', 'revoke', id)).code).toBe(5);
  const revoked = await ctl(stack, 'tokens', 'revoke', id, '--yes');
  expect(revoked).toMatchObject({ code: 0, out: `Revoked the token ${id}.\n` });
  expect((await ctlWith(asAnn, 'plans', 'show')).code).toBe(1);
  expect((await ctl(stack, 'tokens', 'revoke', id, '--yes')).code).toBe(3);
  const { text } = await stack.admin('GET', '/plans', undefined, { key: undefined });
  expect(text).toContain('A token for this service is required.');
});

test('ctl doctor reports a hanging gateway within seconds', async () => {
  const adminUrl = await bareCore(() => {});
  const { code, err } = await ctl({ adminUrl }, 'doctor');
  expect([code, err]).toEqual([1, `The gateway at ${adminUrl} did not respond within 5 s: it or its machine hangs.\n`]);
});
