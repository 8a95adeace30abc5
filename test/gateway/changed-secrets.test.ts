import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CoreSettings, readCoreSettings } from '../../core/config.ts';
import { startCore } from '../../core/core.ts';
import { currentSecret } from '../../shared/process/secret.ts';
import { cleanUp } from '../support/clean-up.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { readableLog } from '../support/log.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

const OLD = 'the-old-token-of-the-core';
const NEW = 'the-new-token-of-the-core';

test('a secret in a file is read again; a file that is no good is told once, without its content, and changes nothing', async () => {
  const path = join(await temporaryFolder(), 'token');
  await writeFile(path, `${OLD}\n`);
  const { logger, lines } = readableLog();
  const settings = readCoreSettings({ CORE_TOKEN_FILE: path });
  const read = currentSecret(CoreSettings, settings, 'CORE_TOKEN', { logger, maxAgeMs: 0 });
  expect(read()).toEqual([OLD]);
  for (const bad of ['', '\n', 'too-short-token', `${NEW},`, `${NEW} ${NEW}`]) {
    await writeFile(path, bad);
    expect([read(), read()]).toEqual([[OLD], [OLD]]);
  }
  await rm(path);
  expect([read(), read()]).toEqual([[OLD], [OLD]]);
  await writeFile(path, `${NEW},${OLD}`);
  expect([read(), read()]).toEqual([
    [NEW, OLD],
    [NEW, OLD],
  ]);
  expect(lines.map(({ level, msg, setting, reason }) => [level, msg, setting, reason])).toEqual([
    [50, 'the file of a setting is no good; the last good value stays', 'CORE_TOKEN', 'it has no valid value'],
    [50, 'the file of a setting is no good; the last good value stays', 'CORE_TOKEN', 'ENOENT'],
    [30, 'the setting was changed', 'CORE_TOKEN', undefined],
  ]);
  expect(JSON.stringify(lines)).not.toMatch(/token-of|too-short/);
});

test('a secret that is in no file stays as it is', () => {
  const settings = readCoreSettings({ CORE_TOKEN: OLD });
  const { logger } = readableLog();
  expect(currentSecret(CoreSettings, settings, 'CORE_TOKEN', { logger, maxAgeMs: 0 })()).toEqual([OLD]);
});

test('the gateway sends the first of several tokens, and the core accepts each of them, and no other', async () => {
  const core = await listeningCore();
  const stack = await startStack({ CORE_URL: core.url, CORE_TOKEN: `${NEW},${OLD}` });
  await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() });
  expect(core.heads.at(-1)).toContain(`\r\nAuthorization: Bearer ${NEW}\r\n`);
  const asked = [NEW, OLD, `${NEW},${OLD}`, `${NEW}${OLD}`, 'neither-of-both-tokens'];
  const statuses = asked.map(async (key) => (await send(`${stack.core}/v1/pets`, { key })).status);
  expect(await Promise.all(statuses)).toEqual([200, 200, 401, 401, 401]);
});

/** The values that CORE_TOKEN takes one after the other. */
const STEPS = [OLD, `${OLD},${NEW}`, `${NEW},${OLD}`, NEW];

test('while one step is made, every gateway is served by every core, whichever of them is ahead', async () => {
  const folder = await temporaryFolder();
  const cores = await Promise.all(
    STEPS.map(async (CORE_TOKEN, step) => {
      const DATABASE_URL = `sqlite:${folder}/${step}.db`;
      const core = await startCore(readCoreSettings({ CORE_TOKEN, DATABASE_URL, PORT: '0' }), readableLog().logger);
      cleanUp(() => core.stop(0));
      return core.addresses.core ?? '';
    }),
  );
  for (const [step, CORE_TOKEN] of STEPS.entries())
    for (const CORE_URL of cores.slice(Math.max(0, step - 1), step + 2)) {
      const stack = await startStack({ CORE_URL, CORE_TOKEN });
      expect((await send(`${stack.gateway}/v1/pets`, { key: await stack.issueKey() })).status).toBe(200);
    }
});
