import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import { keptToken, tokenFile } from '../../gateway/operators/tokens.ts';
import { bearerTokens } from '../../shared/http/service.ts';
import { CLI } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { type Ended, startProcess, startService } from '../support/process.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { temporaryFolder } from '../support/stack.ts';

const settingsIn = (DATA_DIR: string) => ({ DATA_DIR, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'silent' });

/** Runs the shell command `limits`, then starts a gateway that is expected to fail. */
const failedStart = (DATA_DIR: string, limits = ':'): Promise<Ended> =>
  startProcess('sh', ['-c', `${limits}; exec ${process.execPath} gateway/main.ts`], settingsIn(DATA_DIR)).ended;

test('three simultaneous starts in a new folder agree on one token, which only the owner can read, 300 times in a row', async () => {
  const folder = await temporaryFolder();
  for (let round = 0; round < 300; round++) {
    const directory = join(folder, String(round));
    const tokens = await Promise.all([keptToken(directory), keptToken(directory), keptToken(directory)]);
    const kept = (await readFile(tokenFile(directory), 'utf8')).trim();
    expect([...new Set([...tokens, kept])]).toEqual([expect.stringMatching(/^[\w-]{43}$/)]);
    expect(await readdir(directory)).toEqual(['admin-token']);
    expect((await stat(tokenFile(directory))).mode & 0o777).toBe(0o600);
  }
});

test('gateways that start at the same time agree on one token, and each requires it', async () => {
  const DATA_DIR = await temporaryFolder();
  const { url: REDIS_URL } = await emptyDatabase();
  const gateways = await Promise.all(
    Array.from({ length: 3 }, () => startService('gateway/main.ts', { ...settingsIn(DATA_DIR), REDIS_URL })),
  );
  const key = (await readFile(tokenFile(DATA_DIR), 'utf8')).trim();
  for (const { addresses } of gateways) {
    expect((await send(`${addresses.admin}/plans`)).status).toBe(401);
    expect((await send(`${addresses.admin}/plans`, { key })).status).toBe(200);
  }
});

/** The message about a file without a valid token. */
const sentenceOn = (folder: string): string =>
  `${tokenFile(folder)} does not contain a token of at least 16 characters without spaces. ` +
  'Remove the file and restart the gateway, which creates a new one, or set ADMIN_TOKEN.';

test.for([
  ['no text', ''],
  ['a blank line', '\n'],
  ['one character', 'x'],
  ['15 characters', 'x'.repeat(15)],
  ['two words', 'sixteen characters and more'],
] as const)('a token file with %s is refused and not changed', async ([, text]) => {
  const folder = await temporaryFolder();
  await writeFile(tokenFile(folder), text);
  await expect(keptToken(folder)).rejects.toThrow(sentenceOn(folder));
  expect(await readFile(tokenFile(folder), 'utf8')).toBe(text);
});

test('with an empty token file, the gateway and ctl exit with a message', async () => {
  const folder = await temporaryFolder();
  await writeFile(tokenFile(folder), '');
  const command = startProcess(process.execPath, [CLI, 'plans', 'show'], { DATA_DIR: folder }).ended;
  const refused = { code: 1, out: '', err: `${sentenceOn(folder)}\n` };
  expect(await Promise.all([failedStart(folder), command])).toEqual([refused, refused]);
});

test('a start on a full disk fails with a message and leaves no file behind; a later start creates a token', async () => {
  const folder = await temporaryFolder();
  const { code, err } = await failedStart(folder, 'ulimit -f 0');
  expect(code).toBe(1);
  expect(err).toMatch(/^DATA_DIR \S+ holds no database, and none can be created\. .*\n$/);
  expect((await readdir(folder)).filter((name) => !['lock', 'reserve'].includes(name))).toEqual([]);
  const { addresses } = await startService('gateway/main.ts', settingsIn(folder));
  expect((await send(`${addresses.admin}/plans`)).status).toBe(401);
});

test('a service cannot be created with an empty list of tokens or with an empty token', () => {
  for (const tokens of [[], [''], ['token-of-the-tests', '']])
    expect(() => bearerTokens(() => tokens)).toThrow('A service token must not be empty.');
});

const LONG = 'x'.repeat(16);

test.for(['', 'x', 'x'.repeat(15), `${LONG},`, `,${LONG}`, `${LONG},,${LONG}`, `${LONG}, ${LONG}`, `${LONG},x`])(
  'the token %j is refused as CORE_TOKEN by gateway and core',
  (token) => {
    const fault = 'CORE_TOKEN: must be a token of at least 16 characters, without spaces';
    expect(() => readCoreSettings({ CORE_TOKEN: token })).toThrow(fault);
    expect(() => readGatewaySettings({ CORE_TOKEN: token })).toThrow(fault);
  },
);

test('an ADMIN_TOKEN that is too short is refused, and an empty one is replaced by a generated token', () => {
  expect(() => readGatewaySettings({ ADMIN_TOKEN: 'x' })).toThrow('ADMIN_TOKEN: must be a token of at least 16');
  expect(readGatewaySettings({ ADMIN_TOKEN: '' }).ADMIN_TOKEN).toBeUndefined();
});
