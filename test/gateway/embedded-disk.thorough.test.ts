import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { damage } from '../support/damaged-database.ts';
import { send } from '../support/http.ts';
import { inTurn } from '../support/in-turn.ts';
import { scrape } from '../support/metrics.ts';
import { smallDisk } from '../support/small-disk.ts';
import { temporaryFolder } from '../support/stack.ts';
import { eventually, launchWorkers, type Workers } from '../support/workers.ts';

/**
 * Tests a gateway without Redis whose disk is full or read-only: stored keys and plans stay in force, and the fault is
 * reported.
 */

const startOn = (DATA_DIR: string) =>
  launchWorkers({ WORKERS: '1', REDIS_URL: '', DATA_DIR, CORE_URL: 'http://127.0.0.1:1' });

async function stop({ child, ended }: Workers): Promise<void> {
  child.kill('SIGTERM');
  await ended;
}

/** Returns the status of a request with this key. A valid key gets 502, because no core is running. */
const statusOf = async ({ gateway }: Workers, key: string) => (await send(`${gateway}/v1/pets`, { key })).status;

const issue = (gateway: Workers) => gateway.issueKey({ plan: 'free' });
const create = (gateway: Workers, name = 'x') => gateway.change('POST', '/keys', { name, plan: 'free' });

const NOT_MADE = (why: string) => ({
  code: 'unavailable',
  message: `The change was not made. ${why}`,
  status: 503,
});

const isStored = async ({ adminUrl }: Workers) => (await scrape(adminUrl)).sum('gateway_data_stored');

async function expectFault(gateway: Workers, why: string, advice = 'Free some space for DATA_DIR'): Promise<void> {
  expect((await gateway.admin('/readyz')).json).toEqual({ status: 'ready', detail: why });
  const { findings } = (await gateway.admin('/doctor')).json as { findings: { about: string; found: string }[] };
  expect(findings.find(({ about }) => about === 'data')).toMatchObject({
    status: 'fault',
    found: expect.stringContaining(why),
    advice: expect.stringContaining(advice),
  });
  await eventually(() => gateway.logged('changes cannot be stored')).toMatchObject([{ level: 50, reason: why }]);
  expect(await isStored(gateway)).toBe(0);
}

test('on a full disk, keys can be revoked, disabled, banned and rotated; no other change is made', async (context) => {
  const disk = await smallDisk(8);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const gateway = await startOn(disk.folder);
  const keys = [await issue(gateway), await issue(gateway), await issue(gateway), await issue(gateway)];
  const [revoked = '', disabled = '', banned = '', rotated = ''] = keys;
  await disk.fill();
  const why = 'The disk that holds DATA_DIR is full.';
  const refused = await create(gateway, 'x'.repeat(90));
  expect([refused.status, refused.json]).toEqual([503, NOT_MADE(why)]);
  await expectFault(gateway, why);
  expect((await gateway.change('DELETE', `/keys/${idOf(revoked)}`)).status).toBe(204);
  expect((await gateway.change('PATCH', `/keys/${idOf(disabled)}`, { disabled: true })).status).toBe(200);
  expect((await gateway.change('PUT', `/keys/${idOf(banned)}/ban`, { seconds: 600 })).status).toBe(200);
  const fresh = (await gateway.change('POST', `/keys/${idOf(rotated)}/rotate`, { graceSeconds: 0 })).json as {
    key: string;
  };
  const statuses = () => Promise.all([...keys, fresh.key].map((one) => statusOf(gateway, one)));
  expect(await statuses()).toEqual([401, 401, 429, 401, 502]);
  expect((await gateway.change('PATCH', `/keys/${idOf(rotated)}`, { name: 'other' })).status).toBe(503);
  await disk.free();
  await expect.poll(async () => (await create(gateway)).status).toBe(201);
  const { json } = await gateway.admin('/readyz');
  expect(json).toMatchObject({ status: 'ready' });
  expect(JSON.stringify(json)).not.toContain('DATA_DIR');
  await eventually(() => gateway.logged('changes can be stored again')).toHaveLength(1);
  expect(gateway.logged('changes cannot be stored')).toHaveLength(1);
  expect(await isStored(gateway)).toBe(1);
  await stop(gateway);
});

test('on a full disk, a key can be revoked after any number of rotations', async (context) => {
  const disk = await smallDisk(16);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const gateway = await startOn(disk.folder);
  // The longest networks, so that each rotation takes much space.
  const networks = Array.from({ length: 20 }, (_, at) => `2001:db8::${at}/128`);
  const ids = await inTurn(Array.from({ length: 60 }), 30, async () => idOf(await issue(gateway)));
  await inTurn(ids, 30, async (id) => {
    const [secret] = ((await gateway.admin(`/keys/${id}`)).json as KeyView).secrets;
    await gateway.change('PATCH', `/keys/${id}/secrets/${secret?.id}`, { networks });
  });
  await disk.fill();
  let refused = 0;
  for (let pass = 0; pass < 19 && refused === 0; pass++) {
    const rotate = (id: string) => gateway.change('POST', `/keys/${id}/rotate`, { graceSeconds: 36_000 });
    // The operators' listener limits the number of connections from one address.
    refused = (await inTurn(ids, 30, rotate)).filter(({ status }) => status === 503).length;
  }
  expect(refused).toBeGreaterThan(0);
  for (const id of ids) expect((await gateway.change('DELETE', `/keys/${id}`)).status).toBe(204);
  await stop(gateway);
});

test.for([
  ['restart', 'SIGTERM', 0],
  ['crash', 'SIGKILL', 3_000],
] as const)('a %s on a full disk does not refill buckets', async ([, signal, afterMs], context) => {
  const disk = await smallDisk(8);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const first = await startOn(disk.folder);
  const apiKey = await issue(first);
  await disk.fill();
  await expect.poll(async () => (await create(first)).status).toBe(503);
  for (let sent = 0; sent < 40; sent++) await statusOf(first, apiKey);
  // A crash loses the last second.
  await sleep(afterMs);
  first.child.kill(signal);
  await first.ended;
  const second = await startOn(disk.folder);
  const { minute } = ((await second.admin(`/keys/${idOf(apiKey)}`)).json as KeyView).buckets ?? {};
  expect(minute?.remaining).toBeLessThan(40);
  await stop(second);
});

test('after startup on a read-only disk, keys and plans are in force, and changes are refused', async (context) => {
  const disk = await smallDisk(8);
  if (disk === undefined) return context.skip('This process is not allowed to mount a disk.');
  const first = await startOn(disk.folder);
  const [good, revoked] = [await issue(first), await issue(first)];
  await first.change('PATCH', '/plans/free', { minute: 7 });
  await first.change('DELETE', `/keys/${idOf(revoked)}`);
  await stop(first);
  await disk.remount('ro');
  const second = await startOn(disk.folder);
  expect([await statusOf(second, good), await statusOf(second, revoked)]).toEqual([502, 401]);
  expect((await second.admin('/plans')).json).toMatchObject({ free: { minute: 7 } });
  const refused = await second.change('DELETE', `/keys/${idOf(good)}`);
  expect([refused.status, refused.json]).toEqual([503, NOT_MADE('DATA_DIR is read-only.')]);
  await expectFault(second, 'DATA_DIR is read-only.', 'then restart this gateway');
  await stop(second);
  await disk.remount('rw');
});

test('on a database with a damaged page, doctor and backup name the damage, and clients are not told', async () => {
  const folder = await temporaryFolder();
  const first = await startOn(folder);
  const keys = await inTurn(Array.from({ length: 60 }), 30, () => issue(first));
  await stop(first);
  await damage(join(folder, 'gateway.db'), 'records');
  const gateway = await startOn(folder);
  const why = 'The database in DATA_DIR is damaged.';
  const { findings } = (await gateway.admin('/doctor')).json as { findings: { about: string }[] };
  expect(findings.find(({ about }) => about === 'keys')).toMatchObject({ found: 'cannot be read', advice: why });
  expect((await gateway.admin('/backup')).json).toMatchObject({ status: 503, message: why });
  const read = await inTurn(keys, 30, (key) => gateway.admin(`/keys/${idOf(key)}`));
  const damaged = keys.filter((_, at) => read[at]?.status === 503);
  expect([damaged.length > 0, damaged.length < keys.length]).toEqual([true, true]);
  const told = await send(`${gateway.gateway}/v1/limits`, { key: damaged[0] });
  expect([told.status, told.text.includes('DATA_DIR')]).toEqual([503, false]);
  expect((await create(gateway)).json).toEqual(NOT_MADE(why));
  await expectFault(gateway, why, 'restore a backup');
  await stop(gateway);
});

test('after the database file was removed, the doctor advises to make a backup', async () => {
  const folder = await temporaryFolder();
  const gateway = await startOn(folder);
  await rm(join(folder, 'gateway.db'));
  const why =
    'The database file was removed or replaced. This gateway still has it open: make a backup with ctl backup, ' +
    'restart the gateway, and restore the backup.';
  await expectFault(gateway, why, 'Run ctl backup');
  await stop(gateway);
});
