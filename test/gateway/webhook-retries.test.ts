import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { type Happening, happeningOf, secretBytes, sign } from '../../gateway/webhooks/message.ts';
import { type WebhookOptions, Webhooks } from '../../gateway/webhooks/webhooks.ts';
import { cleanUp } from '../support/clean-up.ts';
import { memoryUnderTest } from '../support/limiters.ts';
import { readableLog } from '../support/log.ts';
import { freePort } from '../support/port.ts';
import { secretWith } from '../support/secrets.ts';
import { WEBHOOK_SECRET, webhookReceiver } from '../support/webhook-receiver.ts';

const QUICK = { timeoutMs: 60_000, attempts: 4, firstRetryMs: 20, longestRetryMs: 1_000 };

/** Sets up webhooks whose events concern real keys, each with a decision. */
async function setUp(options: Pick<WebhookOptions, 'url'> & Partial<WebhookOptions>) {
  const { keys, limiter } = await memoryUnderTest();
  const { logger, lines } = readableLog();
  const webhooks = new Webhooks(keys, logger, { secret: () => WEBHOOK_SECRET, ...QUICK, ...options });
  cleanUp(() => webhooks.stop());
  async function sendEvent(): Promise<string> {
    const { credential } = createApiKey();
    const { id, digest } = credential;
    await keys.create(id, { name: 'acme', plan: 'free', day: 1, secrets: [secretWith(digest)], createdAt: 0 });
    webhooks.send(happeningOf('day_80', id, (await limiter.decide(credential)) as Decision));
    return id;
  }
  const counts = () =>
    Object.fromEntries(
      webhooks.counted().flatMap(({ values }) => values.map(({ labels, value }) => [labels.result, value])),
    );
  return { webhooks, keys, sendEvent, counts, lines };
}

const happeningTo = (keyId: string, mode: Happening['mode'] = 'shared'): Happening => {
  return { event: 'day_80', keyId, plan: 'free', at: 1, limit: 1, tokens: 0, mode, bannedUntil: 0 };
};

const status = (code: number) => (response: ServerResponse) => void response.writeHead(code).end();

test('a failed delivery is retried with growing delays and the same id and body', async () => {
  const at: number[] = [];
  const receiver = await webhookReceiver((response, number) => {
    at.push(performance.now());
    status([500, 429, 404][number] ?? 204)(response);
  });
  const { sendEvent, counts, lines } = await setUp({ url: receiver.url, firstRetryMs: 60 });
  await sendEvent();
  await expect.poll(counts).toEqual({ delivered: 1, retried: 3, given_up: 0, dropped: 0 });
  expect(new Set(receiver.deliveries.map(({ headers, body }) => `${headers['webhook-id']} ${body}`)).size).toBe(1);
  const rests = at.slice(1).map((time, after) => time - (at[after] as number));
  for (const [index, least] of [30, 60, 120].entries()) expect(rests[index]).toBeGreaterThanOrEqual(least - 2);
  expect(lines).toEqual([]);
});

test('an event that is never accepted is lost after its last attempt, with one log line that contains no secret', async () => {
  const receiver = await webhookReceiver(status(503));
  const { sendEvent, counts, lines } = await setUp({ url: `${receiver.url}?token=canary-of-the-url` });
  const keyId = await sendEvent();
  await expect.poll(counts).toEqual({ delivered: 0, retried: 3, given_up: 1, dropped: 0 });
  expect(receiver.deliveries.length).toBe(4);
  expect(lines).toEqual([
    expect.objectContaining({
      msg: 'webhook event lost',
      keyId,
      event: 'key.day_80',
      attempts: 4,
      reason: 'status 503',
    }),
  ]);
  expect(JSON.stringify(lines)).not.toMatch(/canary|whsec|MfKQ/);
});

test.for([
  [
    'no receiver is listening',
    async (): Promise<string> => `http://127.0.0.1:${await freePort()}`,
    'ECONNREFUSED',
    60_000,
  ],
  ['the port of the receiver is forbidden', async (): Promise<string> => 'http://127.0.0.1:1', 'bad port', 60_000],
  [
    'the receiver never responds',
    async (): Promise<string> => (await webhookReceiver(() => undefined)).url,
    'no answer in time',
    300,
  ],
] as const)('if %s, an event is lost, and the reason is logged', async ([, urlOf, reason, timeoutMs]) => {
  const { sendEvent, counts, lines } = await setUp({ url: await urlOf(), timeoutMs });
  await sendEvent();
  await expect.poll(counts).toMatchObject({ delivered: 0, given_up: 1 });
  expect(lines).toMatchObject([{ reason }]);
});

test('each attempt is signed with the current secret', async () => {
  const secrets = ['the-first-secret-of-webhooks', 'the-second-secret-of-webhooks'];
  const receiver = await webhookReceiver((response, number) => status(number === 0 ? 500 : 204)(response));
  const { sendEvent, counts } = await setUp({ url: receiver.url, secret: () => secrets[receiver.deliveries.length] });
  await sendEvent();
  await expect.poll(counts).toMatchObject({ delivered: 1 });
  const signed = receiver.deliveries.map(({ headers, body }, at) => {
    const timestamp = Number(headers['webhook-timestamp']);
    return sign(secretBytes(secrets[at] as string), String(headers['webhook-id']), timestamp, body);
  });
  expect(receiver.deliveries.map(({ headers }) => headers['webhook-signature'])).toEqual(signed);
});

test('a redirect is not followed', async () => {
  const elsewhere = await webhookReceiver();
  const receiver = await webhookReceiver((response) => {
    response.writeHead(307, { location: elsewhere.url }).end();
  });
  const { sendEvent, counts } = await setUp({ url: receiver.url });
  await sendEvent();
  await expect.poll(counts).toMatchObject({ delivered: 0, given_up: 1 });
  expect(elsewhere.deliveries).toEqual([]);
});

test('only the beginning of an endless response to a webhook is read', async () => {
  const cut = Promise.withResolvers<void>();
  const receiver = await webhookReceiver((response) => {
    response.on('close', cut.resolve);
    const more = (error?: Error | null) => void (error || response.write('x'.repeat(65_536), more));
    more();
  });
  const { sendEvent, counts } = await setUp({ url: receiver.url });
  await sendEvent();
  await expect.poll(counts).toMatchObject({ delivered: 1 });
  await cut.promise;
});

test('at most 1,000 events wait and four are sent at once, and the others are dropped and counted', async () => {
  const receiver = await webhookReceiver(() => {});
  const { sendEvent, counts, webhooks, lines } = await setUp({ url: receiver.url });
  const first = await sendEvent();
  for (let number = 1; number < 12; number++) await sendEvent();
  await expect.poll(() => receiver.deliveries.length).toBe(4);
  await sleep(200);
  expect(receiver.deliveries.length).toBe(4);
  for (let number = 12; number < 1_100; number++) webhooks.send(happeningTo(first));
  expect(counts()).toMatchObject({ dropped: 100 });
  await webhooks.stop();
  expect(counts()).toMatchObject({ delivered: 0, retried: 0 });
  expect(lines).toHaveLength(1_000);
  expect(lines).toContainEqual(
    expect.objectContaining({ msg: 'webhook event lost', keyId: first, reason: 'The gateway is stopping.' }),
  );
});

test('a stopping gateway sends waiting events and drops later ones', async () => {
  const receiver = await webhookReceiver((response) => void setTimeout(() => status(204)(response), 50));
  const { sendEvent, counts, webhooks } = await setUp({ url: receiver.url });
  for (let number = 0; number < 12; number++) await sendEvent();
  await webhooks.stop();
  expect(counts()).toEqual({ delivered: 12, retried: 0, given_up: 0, dropped: 0 });
  await sendEvent();
  expect(counts()).toMatchObject({ dropped: 1 });
});

test('a stopping gateway makes one more attempt to send an event that waits for its retry', async () => {
  const receiver = await webhookReceiver((response, number) => status(number < 2 ? 500 : 204)(response));
  const { sendEvent, counts, webhooks } = await setUp({
    url: receiver.url,
    firstRetryMs: 60_000,
    longestRetryMs: 60_000,
  });
  await sendEvent();
  await sendEvent();
  await expect.poll(counts).toMatchObject({ retried: 2 });
  await webhooks.stop();
  expect(counts()).toEqual({ delivered: 2, retried: 2, given_up: 0, dropped: 0 });
});

test('an event for a key that no longer exists counts as dropped, and one that another gateway claimed does not', async () => {
  const receiver = await webhookReceiver();
  const { sendEvent, counts, keys, webhooks } = await setUp({ url: receiver.url });
  const id = await sendEvent();
  await expect.poll(counts).toMatchObject({ delivered: 1 });
  webhooks.send(happeningTo(createApiKey().credential.id));
  await expect.poll(counts).toMatchObject({ dropped: 1 });
  await keys.claim(id, 'day_80', 0, 'another');
  webhooks.send(happeningTo(id));
  await webhooks.stop();
  expect(counts()).toEqual({ delivered: 1, retried: 0, given_up: 0, dropped: 1 });
});

test('the 80 % event is sent only if the usage in the store has reached 80 %, except after an uncounted local decision', async () => {
  const receiver = await webhookReceiver();
  const { webhooks, keys } = await setUp({ url: receiver.url });
  const unused = async () => {
    const { id, digest } = createApiKey().credential;
    await keys.create(id, { name: 'acme', plan: 'free', secrets: [secretWith(digest)], createdAt: 0 });
    return id;
  };
  const [raised, decidedHere] = [await unused(), await unused()];
  webhooks.send(happeningTo(raised, 'shared'));
  webhooks.send(happeningTo(decidedHere, 'local'));
  await webhooks.stop();
  expect(receiver.deliveries.map(({ event }) => event.data.keyId)).toEqual([decidedHere]);
});
