import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctlWith, operatorOf } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, startStack } from '../support/stack.ts';

const { url: redisUrl } = await emptyDatabase();

const REFUSED: readonly [args: readonly string[], message: string][] = [
  [['plans', 'set', 'free', '--minute', 'nan'], 'It must be a whole number from 1 to 1000000000.'],
  [['plans', 'set', 'gold', '--minute', '5'], 'Allowed choices are free, pro, business, enterprise.'],
  [['plans', 'set', 'free'], 'The body contains no changes.'],
  [['plans', 'set', 'enterprise', '--minute', '5'], 'enterprise has no minute of its own: its keys carry them.'],
  [['keys', 'create', '--plan', 'gold', '--name', 'a'], 'Allowed choices are free, pro, business, enterprise.'],
  [['keys', 'create', '--plan', 'free', '--name', ''], 'name must not be empty'],
  [['keys', 'create', '--plan', 'free', '--name', 'a', '--expires', 'soon'], 'expiresAt must be an RFC 3339 time'],
  [['bans', 'set', '000000000000', '--for', 'ever', '--reason', 'a'], 'It must be a duration'],
  [['bans', 'set', '000000000000', '--for', '1h'], "required option '--reason <text>'"],
  [['bans', 'set', '000000000000', '--for', '90', '--reason', 'a'], 'It needs a unit: 90s, 90m, 90h or 90d.'],
  [['keys', 'rotate', '000000000000', '--grace', '24'], 'It needs a unit: 24s, 24m, 24h or 24d.'],
  [['keys', 'list', '--unused', '30'], 'It needs a unit'],
  [['keys', 'list', '--sort', 'used', '--offset', '5'], '--offset cannot be used with --sort'],
  [['keys', 'list', '--state', 'asleep'], 'Allowed choices are active, banned, disabled, expired, unreadable.'],
  [['keys', 'top', '--minutes', '61'], 'minutes must be a whole number from 1 to 60.'],
  [['keys', 'explain', '000000000000', '--limit', '2000'], 'limit must be a whole number from 1 to 1000.'],
  [['usage', '--from', '2200-01-01'], 'from must not be after to.'],
  [['usage', '--from', '2200-01-01', '--csv'], 'from must not be after to.'],
  [['usage', '--from', '2200-01-01', '--json'], 'from must not be after to.'],
  [['fly'], "unknown command 'fly'"],
];

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
  const stack = await startStack({ ...environment, ADMIN_TOKEN: '' });
  const operator = { ADMIN_PORT: new URL(stack.adminUrl).port, DATA_DIR: stack.directory };

  test('a key is issued, listed, used, and revoked', async () => {
    const created = await ctlWith(operator, 'keys', 'create', '--plan', 'pro', '--name', 'acme');
    expect(created).toMatchObject({ code: 0, err: '' });
    const key = /^as_\w+$/m.exec(created.out)?.[0] ?? '';
    const id = idOf(key);
    expect((await send(`${stack.gateway}/v1/pets`, { key })).headers['x-ratelimit-limit']).toBe('300');

    const listed = await ctlWith(operator, 'keys', 'list');
    expect(listed.out).toMatch(new RegExp(`^${id}  acme  pro  +active .* 1 +0 `, 'm'));
    expect(listed.out).not.toContain(key);

    expect(await ctlWith(operator, 'keys', 'revoke', id, '--yes')).toMatchObject({ code: 0, out: `Revoked ${id}.\n` });
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(401);
    const again = await ctlWith(operator, 'keys', 'revoke', id, '--yes');
    expect(again).toMatchObject({ code: 3, out: '', err: 'There is no such key.\n' });
  });

  test('plans are shown and changed', async () => {
    const set = await ctlWith(operator, 'plans', 'set', 'business', '--minute', '2000', '--ban-after', '5');
    expect(set).toMatchObject({ code: 0, err: expect.stringMatching(/^business\.minute +1000 -> 2000$/m) });
    expect((await ctlWith(operator, 'plans', 'show')).out).toMatch(/^business +2000 +100000 +5 +30 +300 .*enforce$/m);
    const asJson = await ctlWith(operator, '--json', 'plans', 'show');
    expect(JSON.parse(asJson.out)).toMatchObject({ business: { minute: 2_000, day: 100_000, ban_after: 5 } });
    const back = await ctlWith(operator, 'plans', 'set', 'business', '--minute', '1000', '--ban-after', 'none');
    expect(back).toMatchObject({ code: 0, err: expect.stringMatching(/^business\.ban_after +5 -> none$/m) });
    expect((await ctlWith(operator, 'plans', 'show')).out).toMatch(
      /^business +1000 +100000 +5 × minute +30 +300 .*enforce$/m,
    );
  });

  test('an enterprise key needs its own limits', async () => {
    const refused = await ctlWith(operator, 'keys', 'create', '--plan', 'enterprise', '--name', 'big');
    expect(refused).toMatchObject({
      code: 2,
      err: expect.stringContaining('an enterprise key carries its own limits'),
    });
    const created = await ctlWith(
      operator,
      ...'--json keys create --plan enterprise --name big --minute 5 --day 50'.split(' '),
    );
    expect(JSON.parse(created.out)).toMatchObject({ plan: 'enterprise', minute: 5, day: 50, state: 'active' });
  });
});

test('ctl refuses invalid input with a message', async () => {
  const stack = await startStack();
  const operator = operatorOf(stack);
  const refused = REFUSED.map(async ([args, message]) => {
    const { code, out, err } = await ctlWith(operator, ...args);
    expect({ args, code, out }).toEqual({ args, code: 2, out: '' });
    expect(err).toContain(message);
  });
  await Promise.all(refused);
});

test('ctl reports an unreachable gateway', async () => {
  const { code, err } = await ctlWith({ ADMIN_PORT: '1', ADMIN_TOKEN: 'token-of-the-tests' }, 'plans', 'show');
  expect(code).toBe(1);
  expect(err).toBe(
    'No gateway answers at http://127.0.0.1:1. Is it running? ADMIN_HOST and ADMIN_PORT are its address.\n',
  );
});

test('ctl doctor reports a gateway that hangs within seconds', async () => {
  const silent = net.createServer(() => {}).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  cleanUp(() => void silent.close());
  const ADMIN_PORT = String((silent.address() as AddressInfo).port);
  const { code, err } = await ctlWith({ ADMIN_PORT, ADMIN_TOKEN: 'token-of-the-tests' }, 'doctor');
  expect([code, err]).toEqual([
    1,
    `The gateway at http://127.0.0.1:${ADMIN_PORT} has not answered for 5 s: it or its machine hangs.\n`,
  ]);
});
