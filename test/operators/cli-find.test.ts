import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl, ctlReading } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

/** Finding a key, and lists over more keys than one call checks. */

test('ctl finds a key by anything that a customer can quote', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ name: 'acme zoo' });
  await stack.issueKey({ name: 'acme farm' });
  await send(`${stack.gateway}/v1/pets`, { key, headers: { 'x-request-id': 'request-of-acme' } });
  const [byKey, byRequest, byName, none] = await Promise.all([
    ctlReading(stack, `${key}\n`, 'keys', 'find'),
    ctl(stack, 'keys', 'find', 'request-of-acme'),
    ctl(stack, 'keys', 'find', 'ACME'),
    ctl(stack, 'keys', 'find', 'nobody', '--json'),
  ]);
  for (const found of [byKey, byRequest]) {
    expect(found).toMatchObject({ code: 0, err: '' });
    expect(found.out).toMatch(new RegExp(`^id +${idOf(key)}\nname +acme zoo\n`));
  }
  expect(byName.out).toMatch(/ acme farm +free +active +name\n.* acme zoo +free +active +name\n$/);
  expect([none.code, none.out, JSON.parse(none.err)]).toEqual([
    3,
    '',
    { code: 'not_found', status: 404, message: expect.stringContaining('No key has this id or name') },
  ]);
});

test('the secret of a pasted key is never sent', async () => {
  const asked: string[] = [];
  const server = http
    .createServer((request, response) => {
      request.on('data', (chunk) => asked.push(String(chunk)));
      request.on('end', () => {
        asked.push(request.url ?? '', JSON.stringify(request.rawHeaders));
        response.end('{"keys":[]}');
      });
    })
    .listen(0, '127.0.0.1');
  cleanUp(() => server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const stack = { adminUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  const { apiKey, credential } = createApiKey();
  const secret = apiKey.slice(16);
  const ended = await Promise.all([
    ctlReading(stack, apiKey, 'keys', 'find'),
    ctl(stack, 'keys', 'find', apiKey),
    ctl(stack, 'keys', 'find', `Bearer ${apiKey}`),
    ctl(stack, 'keys', 'find', secret),
  ]);
  expect(ended.map(({ code }) => code)).toEqual([3, 3, 3, 2]);
  expect(ended[1]?.err).toContain('Note: the secret was dropped and not sent.');
  expect(ended[3]?.err).toContain('Nothing was sent.');
  expect(asked.filter((text) => text.startsWith('/keys/find'))).toEqual(
    Array.from({ length: 3 }, () => `/keys/find?text=${credential.id}`),
  );
  expect(JSON.stringify([asked, ended])).not.toContain(secret.slice(0, 8));
});

test('the busiest keys and sorted lists cover all keys, however many there are', async () => {
  const { url, redis } = await emptyDatabase();
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' });
  const old = await stack.issueKey({ name: 'old and loud' });
  for (let sent = 0; sent < 3; sent++) await send(`${stack.gateway}/v1/pets`, { key: old });
  const places = Array.from({ length: 5_200 }, (_, at) => [
    String(Date.now() / 1_000 + at / 1_000),
    `0${String(at).padStart(11, 'x')}`,
  ]);
  await redis.zadd('gateway:keys', ...places.flat());
  const young = await stack.issueKey({ name: 'young', plan: 'pro' });
  await redis.zadd('gateway:keys', Date.now() / 1_000 + 100, idOf(young));
  await send(`${stack.gateway}/v1/pets`, { key: young });
  const [top, topPro, used, idle] = await Promise.all([
    ctl(stack, 'keys', 'top', '--minutes', '60'),
    ctl(stack, 'keys', 'top', '--minutes', '60', '--plan', 'pro', '--json'),
    ctl(stack, 'keys', 'list', '--sort', 'used', '--near', '1', '--json'),
    ctl(stack, 'keys', 'list', '--unused', '1h'),
  ]);
  expect(top.out).toMatch(/^id .*\n\w{12} {2}old and loud {2}free +active +3 +0 .*\n\w{12} {2}young .* 1 +0 .*\n$/);
  expect((JSON.parse(topPro.out) as { keys: { name: string }[] }).keys.map(({ name }) => name)).toEqual(['young']);
  expect(JSON.parse(used.out)).toMatchObject({ total: 5_202, keys: [] });
  expect(idle.out).toContain('0 of 5202');
});
