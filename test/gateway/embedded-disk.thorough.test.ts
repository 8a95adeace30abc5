import { expect, test } from 'vitest';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { post, send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { startService } from '../support/process.ts';
import { smallDisk } from '../support/small-disk.ts';
import { ADMIN_TOKEN } from '../support/stack.ts';

/**
 * Tests a gateway without Redis whose disk is full or read-only: stored keys and plans stay in force, and the fault is
 * reported.
 */

const key = ADMIN_TOKEN;

async function startOn(DATA_DIR: string) {
  const environment = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR, CORE_URL: 'http://127.0.0.1:1' };
  const { child, ended, addresses } = await startService('gateway/main.ts', environment);
  const admin = addresses.admin as string;
  return {
    ask: async (method: string, path: string, body?: unknown) =>
      body === undefined ? await send(admin + path, { method, key }) : await post(admin + path, body, { method, key }),
    /** Returns the status of a request with this key. A valid key gets 502, because no core is running. */
    statusOf: async (apiKey: string) => (await send(`${addresses.gateway}/v1/pets`, { key: apiKey })).status,
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

type Gateway = Awaited<ReturnType<typeof startOn>>;

async function issue({ ask }: Gateway): Promise<string> {
  const { status, json } = await ask('POST', '/keys', { name: 'acme', plan: 'free' });
  expect(status).toBe(201);
  return (json as { key: string }).key;
}

const NOT_MADE = (why: string) => ({
  code: 'unavailable',
  message: `The change was not made. ${why}`,
  status: 503,
});

async function expectFault(gateway: Gateway, why: string, advice = 'Free some space for DATA_DIR'): Promise<void> {
  expect((await gateway.ask('GET', '/readyz')).json).toEqual({ status: 'ready', detail: why });
  const { findings } = (await gateway.ask('GET', '/doctor')).json as { findings: { about: string; found: string }[] };
  expect(findings.find(({ about }) => about === 'data')).toMatchObject({
    status: 'fault',
    found: expect.stringContaining(why),
    advice: expect.stringContaining(advice),
  });
}

test('on a full disk, keys can be revoked, disabled, banned and rotated; no other change is made', async (context) => {
  const disk = await smallDisk(8);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const gateway = await startOn(disk.folder);
  const keys = [await issue(gateway), await issue(gateway), await issue(gateway), await issue(gateway)];
  const [revoked = '', disabled = '', banned = '', rotated = ''] = keys;
  await disk.fill();
  const why = 'The disk of DATA_DIR is full.';
  const refused = await gateway.ask('POST', '/keys', { name: 'x'.repeat(90), plan: 'free' });
  expect([refused.status, refused.json]).toEqual([503, NOT_MADE(why)]);
  await expectFault(gateway, why);
  expect((await gateway.ask('DELETE', `/keys/${idOf(revoked)}`)).status).toBe(204);
  expect((await gateway.ask('PATCH', `/keys/${idOf(disabled)}`, { disabled: true })).status).toBe(200);
  expect((await gateway.ask('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600 })).status).toBe(200);
  const fresh = (await gateway.ask('POST', `/keys/${idOf(rotated)}/rotate`, { graceSeconds: 0 })).json as {
    key: string;
  };
  const statuses = () => Promise.all([...keys, fresh.key].map((one) => gateway.statusOf(one)));
  expect(await statuses()).toEqual([401, 401, 429, 401, 502]);
  expect((await gateway.ask('PATCH', `/keys/${idOf(rotated)}`, { name: 'other' })).status).toBe(503);
  await disk.free();
  await expect.poll(async () => (await gateway.ask('POST', '/keys', { name: 'x', plan: 'free' })).status).toBe(201);
  const { json } = await gateway.ask('GET', '/readyz');
  expect(json).toMatchObject({ status: 'ready' });
  expect(JSON.stringify(json)).not.toContain('DATA_DIR');
  await gateway.stop();
});

test('on a full disk, a key can be revoked after any number of rotations', async (context) => {
  const disk = await smallDisk(16);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const gateway = await startOn(disk.folder);
  const networks = Array.from({ length: 19 }, (_, at) => `10.0.${at}.0/24`);
  const ids = await inTurn(Array.from({ length: 150 }), 30, async () => idOf(await issue(gateway)));
  for (const id of ids) {
    const [secret] = ((await gateway.ask('GET', `/keys/${id}`)).json as KeyView).secrets;
    await gateway.ask('PATCH', `/keys/${id}/secrets/${secret?.id}`, { networks });
  }
  await disk.fill();
  let refused = 0;
  for (let pass = 0; pass < 19 && refused === 0; pass++) {
    const rotate = (id: string) => gateway.ask('POST', `/keys/${id}/rotate`, { graceSeconds: 36_000 });
    // The operators' listener limits the number of connections from one address.
    refused = (await inTurn(ids, 30, rotate)).filter(({ status }) => status === 503).length;
  }
  expect(refused).toBeGreaterThan(0);
  for (const id of ids) expect((await gateway.ask('DELETE', `/keys/${id}`)).status).toBe(204);
  await gateway.stop();
});

test('a restart on a full disk does not refill buckets', async (context) => {
  const disk = await smallDisk(8);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const first = await startOn(disk.folder);
  const apiKey = await issue(first);
  await disk.fill();
  await expect.poll(async () => (await first.ask('POST', '/keys', { name: 'x', plan: 'free' })).status).toBe(503);
  for (let sent = 0; sent < 40; sent++) await first.statusOf(apiKey);
  await first.stop();
  const second = await startOn(disk.folder);
  const { minute } = ((await second.ask('GET', `/keys/${idOf(apiKey)}`)).json as KeyView).buckets ?? {};
  expect(minute?.remaining).toBeLessThan(40);
  await second.stop();
});

test('after startup on a read-only disk, keys and plans are in force, and changes are refused', async (context) => {
  const disk = await smallDisk(8);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const first = await startOn(disk.folder);
  const [good, revoked] = [await issue(first), await issue(first)];
  await first.ask('PATCH', '/plans/free', { minute: 7 });
  await first.ask('DELETE', `/keys/${idOf(revoked)}`);
  await first.stop();
  await disk.remount('ro');
  const second = await startOn(disk.folder);
  expect([await second.statusOf(good), await second.statusOf(revoked)]).toEqual([502, 401]);
  expect((await second.ask('GET', '/plans')).json).toMatchObject({ free: { minute: 7 } });
  const refused = await second.ask('DELETE', `/keys/${idOf(good)}`);
  expect([refused.status, refused.json]).toEqual([503, NOT_MADE('DATA_DIR is read-only.')]);
  await expectFault(second, 'DATA_DIR is read-only.', 'then restart this gateway');
  await second.stop();
  await disk.remount('rw');
});
