import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { post, send, sendBytes } from '../support/http.ts';
import { startService } from '../support/process.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { temporaryFolder } from '../support/stack.ts';
import { webhookReceiver } from '../support/webhook-receiver.ts';
import { recordingCore } from './recording-core.ts';

const REDIS_PASSWORD = 'canary-password-of-redis';
const ADMIN_TOKEN = 'canary-token-of-the-operators';
const CORE_TOKEN = 'canary-token-of-the-core';
const WEBHOOK_SECRET = 'canary-secret-of-the-webhook';
const WEBHOOK_TOKEN = 'canary-token-in-the-url-of-the-webhook';

/** Records all commands that Redis receives from now on. */
async function monitored(url: string): Promise<string[]> {
  const lines: string[] = [];
  const monitor = await connectionTo(url).monitor();
  monitor.on('error', () => {});
  monitor.on('monitor', (_time: string, command: string[]) => void lines.push(command.join(' ')));
  cleanUp(() => monitor.disconnect());
  return lines;
}

/** The command lines of all visible processes. */
const commandLines = (): string =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((id) => {
      try {
        return readFileSync(`/proc/${id}/cmdline`, 'utf8').replaceAll('\0', ' ');
      } catch {
        return '';
      }
    })
    .join('\n');

/** Sends the key in every place where a client may put it, correctly or by mistake. `other` is an invalid key. */
async function useEverywhere(gateway: string, key: string, other: string): Promise<string[]> {
  const pets = `${gateway}/v1/pets`;
  const line = 'GET /v1/pets HTTP/1.1\r\nHost: a\r\n';
  const misplaced = {
    'X-Api-Key': key,
    'Proxy-Authorization': `Bearer ${key}`,
    Cookie: `key=${key}`,
    X_Authorization: key,
    'X-Request-Id': key,
    'X-Forwarded-For': key,
    Connection: `close, ${key}`,
  };
  const answers = await Promise.all([
    send(pets, { key }),
    send(pets, { key, headers: misplaced }),
    post(pets, { name: 'Rex' }, { key }),
    send(`${pets}?key=${key}`, { key }),
    send(`${pets}/${key}`, { key }),
    send(`${pets}/${key}`),
    send(`${gateway}/${key}`, { key }),
    send(pets, { key: other }),
    send(pets, { key: `${key}x` }),
    send(pets, { key: key.slice(0, -1) }),
    send(pets, { headers: { authorization: `Basic ${key}` } }),
    send(pets, { headers: { authorization: [`Bearer ${key}`, `Bearer ${other}`] as unknown as string } }),
    send(pets, { method: 'DELETE', key }),
    send(pets, { method: 'POST', key, body: key, headers: { 'content-type': 'text/plain' } }),
    send(`${gateway}/v1/../${key}`, { key }),
  ]);
  const broken = await Promise.all([
    sendBytes(gateway, `${line}Authorization: Bearer ${key}\r\nnonsense ${key}\r\n\r\n`),
    sendBytes(gateway, `${line}Authorization : Bearer ${key}\r\n\r\n`),
    sendBytes(gateway, `${key} /v1/pets HTTP/1.1\r\n\r\n`),
    sendBytes(gateway, `${line}Authorization: Bearer ${key}\r\nX: ${key.repeat(1_000)}\r\n\r\n`),
  ]);
  return [...answers.map(({ headers, text }) => JSON.stringify(headers) + text), ...broken];
}

test('keys and secrets appear in no answer, log, metric or process list, and reach neither core nor Redis', async () => {
  const redisServer = await ownRedis();
  const url = redisServer.url.replace('//', `//:${REDIS_PASSWORD}@`);
  await connectionTo(redisServer.url).config('SET', 'requirepass', REDIS_PASSWORD);
  const commands = await monitored(url);
  const core = await recordingCore();
  // The receiver fails, so that the lost event is logged.
  const receiver = await webhookReceiver((response) => void response.writeHead(500).end());
  const gateway = await startService('gateway/main.ts', {
    PORT: '0',
    ADMIN_PORT: '0',
    CORE_URL: `${core.url},http://127.0.0.1:1`,
    DATA_DIR: await temporaryFolder(),
    LOG_LEVEL: 'trace',
    REDIS_URL: url,
    REDIS_TIMEOUT_MS: '2000',
    ADMIN_TOKEN,
    CORE_TOKEN,
    WEBHOOK_URL: `${receiver.url}?token=${WEBHOOK_TOKEN}`,
    WEBHOOK_SECRET,
  });
  const { gateway: clients = '', admin = '' } = gateway.addresses;
  const issued = await Promise.all(
    ['free', 'pro', 'business'].map((plan) =>
      post(`${admin}/keys`, { name: plan, plan, ...(plan === 'business' && { day: 1 }) }, { key: ADMIN_TOKEN }),
    ),
  );
  const [key, revoked, usedUp] = issued.map(({ json }) => (json as { key: string }).key) as [string, string, string];
  await send(`${admin}/keys/${idOf(revoked)}`, { method: 'DELETE', key: ADMIN_TOKEN });

  await send(`${clients}/v1/pets`, { key: usedUp });
  const answers = await useEverywhere(clients, key, revoked);
  const running = commandLines();
  for (const target of ['/keys', '/plans', `/keys/${key}`, `/?${ADMIN_TOKEN}`]) {
    for (const bearer of [ADMIN_TOKEN, key, `${ADMIN_TOKEN}x`]) {
      const { headers, text } = await send(admin + target, { key: bearer });
      answers.push(JSON.stringify(headers) + text);
    }
  }
  const metrics = (await send(`${admin}/metrics`)).text;
  // An event is claimed in Redis before it is sent.
  await expect.poll(() => JSON.stringify(receiver.deliveries)).toContain(idOf(usedUp));
  await redisServer.stop();
  answers.push(...(await useEverywhere(clients, key, revoked)));
  gateway.child.kill('SIGINT');
  const { out, err } = await gateway.ended;

  const secrets = [
    ...[key.slice(16), key.slice(16, 48), revoked.slice(16), usedUp.slice(16)],
    ...[REDIS_PASSWORD, ADMIN_TOKEN, CORE_TOKEN, WEBHOOK_SECRET, WEBHOOK_TOKEN],
  ];
  const received = core.received().join('').replaceAll(`Authorization: Bearer ${CORE_TOKEN}\r\n`, '');
  const places = {
    ...{ out, err, metrics, received, running },
    delivered: JSON.stringify(receiver.deliveries),
    answers: answers.join('\n'),
    commands: commands.join('\n'),
  };
  const leaks = Object.entries(places).flatMap(([place, text]) =>
    secrets.filter((secret) => text.includes(secret)).map((secret) => `${place}: ${secret}`),
  );
  expect(leaks).toEqual([]);
  // Ensures that no checked place was empty.
  const id = idOf(key);
  expect(out.split('\n').filter((line) => line.includes(id)).length).toBeGreaterThan(10);
  expect(places.answers).toContain('"code":"unauthorized"');
  expect(received).toContain(id);
  expect(out).toContain('webhook event lost');
  expect(running).toContain('gateway/main.ts');
  expect(places.commands).toMatch(new RegExp(`gateway:key:\\{${id}\\}.* [\\w-]{43}\\b`));
  expect(metrics).toContain('gateway_admin_requests_total');
});
