import { rm, writeFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { cleanUp } from '../support/clean-up.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import type { LogLine } from '../support/log.ts';
import { get } from '../support/operators.ts';
import { startService } from '../support/process.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';

const FREE_PORTS = { PORT: '0', ADMIN_PORT: '0' };
const OLD = 'the-old-token-of-the-core';
const NEW = 'the-new-token-of-the-core';

test("when the file with the operators' token changes, the old token is revoked within a second, even on open connections", async () => {
  const path = join(await temporaryFolder(), 'token');
  await writeFile(path, ADMIN_TOKEN);
  const stack = await startStack({ ADMIN_TOKEN: '', ADMIN_TOKEN_FILE: path });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  cleanUp(() => agent.destroy());
  const statuses = async () =>
    await Promise.all(
      [ADMIN_TOKEN, NEW].map(async (key) => [
        (await send(`${stack.adminUrl}/plans`, { key, agent })).status,
        (await send(`${stack.adminUrl}/plans`, { key })).status,
      ]),
    );
  expect(await statuses()).toEqual([
    [200, 200],
    [401, 401],
  ]);
  for (const bad of ['', 'too-short']) {
    await writeFile(path, bad);
    await sleep(1_000);
    // A probe is enough to detect the invalid file. The token need not be used.
    expect((await send(`${stack.adminUrl}/livez`)).status).toBe(200);
    expect(alarms(stack.log)).toEqual(['it has no valid value']);
  }
  await rm(path);
  await sleep(1_000);
  expect((await statuses())[0]).toEqual([200, 200]);
  expect(alarms(stack.log)).toEqual(['it has no valid value', 'ENOENT']);
  await writeFile(path, `${NEW}\n`);
  await sleep(1_000);
  expect(await statuses()).toEqual([
    [401, 401],
    [200, 200],
  ]);
  expect(JSON.stringify(stack.log)).not.toMatch(/token-of|too-short/);
});

const alarms = (log: readonly LogLine[]) =>
  log.filter(({ level, setting }) => level === 50 && setting === 'ADMIN_TOKEN').map(({ reason }) => reason);

test('the doctor names each secret file with which a gateway cannot start, while the last value stays in force', async () => {
  const file = join(await temporaryFolder(), 'core-token');
  await writeFile(file, `${OLD}\n`);
  const stack = await startStack({ CORE_TOKEN_FILE: file });
  const found = async () =>
    (await get<DoctorAnswer>(stack, '/doctor')).findings.flatMap((one) =>
      one.about === 'setting files' ? `${one.status} ${one.found}` : [],
    );
  const stays = 'the last value stays in force until a restart';
  const invalid =
    'must be a token of at least 16 characters, without spaces; separate several with commas, without empty ones';
  expect(await found()).toEqual(['good CORE_TOKEN_FILE can be read']);
  await rm(file);
  expect(await found()).toEqual([`fault CORE_TOKEN_FILE ${file} must be a file that can be read (ENOENT); ${stays}`]);
  await writeFile(file, '\n');
  expect(await found()).toEqual([`fault CORE_TOKEN_FILE ${file} must be a non-empty file; ${stays}`]);
  await writeFile(file, 'short');
  expect(await found()).toEqual([`fault CORE_TOKEN_FILE ${file} ${invalid}; ${stays}`]);
  expect((await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() })).status).toBe(200);
  await writeFile(file, NEW);
  expect(await found()).toEqual(['good CORE_TOKEN_FILE can be read']);
});

test('the gateway sends the first of several tokens, and the core accepts each of them and no other', async () => {
  const core = await listeningCore();
  const stack = await startStack({ CORE_URL: core.url, CORE_TOKEN: `${NEW},${OLD}` });
  await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() });
  expect(core.heads.at(-1)).toContain(`\r\nAuthorization: Bearer ${NEW}\r\n`);
  const asked = [NEW, OLD, `${NEW},${OLD}`, `${NEW}${OLD}`, 'neither-of-both-tokens'];
  const statuses = asked.map(async (key) => (await send(`${stack.core}/v1/pets`, { key })).status);
  expect(await Promise.all(statuses)).toEqual([200, 200, 401, 401, 401]);
});

test('a new secret for webhooks is noticed without an event', async () => {
  const DATA_DIR = await temporaryFolder();
  const WEBHOOK_SECRET_FILE = join(DATA_DIR, 'secret');
  await writeFile(WEBHOOK_SECRET_FILE, 'the-old-secret-of-the-receiver');
  const environment = { ...FREE_PORTS, DATA_DIR, WEBHOOK_URL: 'http://127.0.0.1:1', WEBHOOK_SECRET_FILE };
  const { out } = await startService('gateway/main.ts', environment);
  await writeFile(WEBHOOK_SECRET_FILE, 'bad');
  await expect.poll(out).toMatch(/"setting":"WEBHOOK_SECRET","reason":"it has no valid value"/);
  await writeFile(WEBHOOK_SECRET_FILE, 'the-new-secret-of-the-receiver');
  await expect.poll(out).toMatch(/"setting":"WEBHOOK_SECRET".*the setting was changed/);
});

test('a worker takes no variable for a misspelt setting of its primary, which does not pass that on', async () => {
  const environment = { ...FREE_PORTS, ADMIN_PRT: '1', DATA_DIR: await temporaryFolder() };
  const { addresses } = await startService('gateway/main.ts', environment);
  expect((await send(`${addresses.gateway}/v1/pets`)).status).toBe(401);
});
