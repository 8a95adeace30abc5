import { expect, test } from 'vitest';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { ctl, ctlProcess, operatorOf } from '../support/ctl.ts';
import { ask } from '../support/operators.ts';
import { startStack } from '../support/stack.ts';

const stack = await startStack();
const out = async (...words: string[]) => {
  const ended = await ctl(stack, ...words);
  expect([ended.code, ended.err]).toEqual([0, '']);
  return ended.out;
};

test('tags are given to a new key, added, replaced, removed and shown', async () => {
  const issued = await out(...'keys create --plan free --name a --tag customer=acme --tag env=a=b'.split(' '));
  expect(issued).toMatch(/ tags\n.* customer=acme, env=a=b\n/);
  const id = idOf(/as_\w+/.exec(issued)?.[0] ?? '');
  const changed = await out(
    ...`keys set ${id} --name b --tag env=test --untag customer --tag`.split(' '),
    'team=Two words',
  );
  expect(changed).toMatch(/^name +b$/m);
  expect(changed).toMatch(/^tags +env=test, team=Two words$/m);
  expect(await out('keys', 'show', id)).toMatch(/^tags +env=test, team=Two words$/m);
  await out('keys', 'set', id, '--plan', 'pro');
  expect(JSON.parse(await out('--json', 'keys', 'show', id))).toMatchObject({
    tags: { env: 'test', team: 'Two words' },
  });
  expect(await out('keys', 'set', id, '--untag', 'env', '--untag', 'team')).not.toContain('tags');
});

test('ctl lists keys, requests and usage by tags, sums usage, and writes tags to CSV', async () => {
  const keys: string[] = [];
  for (const env of ['prod', 'test', 'prod'])
    keys.push(await stack.issueKey({ name: `of ${env}`, tags: { of: 'use', env } }));
  keys.push(await stack.issueKey());
  for (const [at, key] of keys.entries()) for (let sent = 0; sent <= at; sent++) await ask(stack, key, `${at}-${sent}`);
  const [prod, test, other] = keys.map(idOf) as [string, string, string];
  const listed = JSON.parse(await out('keys', 'list', '--tag', 'of=use', '--tag', 'env=prod', '--json')) as {
    keys: KeyView[];
  };
  expect(listed.keys.map(({ id }) => id)).toEqual([other, prod]);
  const top = JSON.parse(await out('keys', 'top', '--tag', 'env=test', '--json')) as { keys: KeyView[] };
  expect(top.keys.map(({ id }) => id)).toEqual([test]);
  const requests = JSON.parse(await out('requests', '--tag', 'env=test', '--json')) as {
    requests: { requestId: string }[];
  };
  expect(requests.requests.map(({ requestId }) => requestId)).toEqual(['1-1', '1-0']);
  expect(await out('usage', '--tag', 'of=use', '--by', 'tag:env')).toMatch(
    /^env +keys +admitted +refused\nprod +2 +4 +0\ntest +1 +2 +0\n$/,
  );
  expect(await out('usage', '--by', 'tag:env')).toMatch(/^- +1 +4 +0$/m);
  expect(await out('usage', '--tag', 'of=use', '--by', 'key', '--csv')).toBe(
    [
      'id,plan,admitted,refused,name,tags',
      `${other},free,3,0,of prod,"env=prod, of=use"`,
      `${test},free,2,0,of test,"env=test, of=use"`,
      `${prod},free,1,0,of prod,"env=prod, of=use"`,
      '',
    ].join('\r\n'),
  );
  const days = await out('usage', '--tag', 'env=test', '--csv');
  expect(days).toMatch(
    /^day,id,plan,admitted,refused,name,tags\r\n\d{4}-\d\d-\d\d,\w{12},free,2,0,of test,"env=test, of=use"\r\n$/,
  );
});

test('--follow shows requests of keys with a tag, even if there were none before', async () => {
  const [tagged, other] = [await stack.issueKey({ tags: { of: 'follow' } }), await stack.issueKey()];
  await ask(stack, other, 'before');
  const started = ctlProcess(operatorOf(stack), 'requests --follow --json --tag of=follow'.split(' '));
  const ids = () =>
    started
      .out()
      .trim()
      .split('\n')
      .filter(Boolean)
      .map((line) => (JSON.parse(line) as { requestId: string }).requestId);
  await expect
    .poll(
      async () => {
        await ask(stack, other, 'of-another');
        await ask(stack, tagged, 'first');
        return ids();
      },
      { timeout: 20_000, interval: 500 },
    )
    .toContain('first');
  await ask(stack, other, 'of-another');
  await ask(stack, tagged, 'second');
  await expect.poll(ids, { timeout: 20_000 }).toContain('second');
  expect(new Set(ids())).toEqual(new Set(['first', 'second']));
  started.child.kill('SIGINT');
  expect(await started.ended).toMatchObject({ code: 0, err: '' });
});
