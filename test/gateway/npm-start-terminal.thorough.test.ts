import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { expect, test, vi } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctlWith } from '../support/ctl.ts';
import { send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { type Started, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Tests `npm start` as its user sees it: on a terminal, after a demo key was revoked, and when it cannot start. */

const FREE_PORTS = { PORT: '0', CORE_PORT: '0', ADMIN_PORT: '0' };

/** Waits until the welcome is complete. */
async function opened(started: Started) {
  await vi.waitFor(() => expect(started.out()).toContain('Ctrl-C stops both.'), 60_000);
  const keys = started.out().match(/as_\w{12}_\w{38}/g) ?? [];
  const urlOf = (name: string) => new RegExp(`${name} +(http://[\\d.:]+)`).exec(started.out())?.[1] ?? '';
  return { keys, gateway: urlOf('gateway'), core: urlOf('core'), admin: urlOf('admin') };
}

const start = (environment: NodeJS.ProcessEnv) => startProcess('npm', ['start', '--silent'], environment);

const DATA_DIR = await temporaryFolder();
const ADMIN_TOKEN_FILE = join(DATA_DIR, 'token');
await writeFile(ADMIN_TOKEN_FILE, 'the-old-token-of-the-operators');
/** Shared by the first tests, in this order. */
const onTerminal = startProcess('script', ['-qec', 'npm start --silent', '/dev/null'], {
  ...FREE_PORTS,
  DATA_DIR,
  ADMIN_TOKEN_FILE,
  TERM: 'xterm-256color',
});
const { keys, gateway, core, admin } = await opened(onTerminal);
const ctl = (...args: string[]) =>
  ctlWith({ ADMIN_TOKEN: '', ADMIN_TOKEN_FILE, ADMIN_PORT: new URL(admin).port }, ...args);
const linesBehindWelcome = () =>
  stripVTControlCharacters(onTerminal.out()).split('Ctrl-C stops both.')[1]?.split('\r\n').filter(Boolean) ?? [];

test('a request is logged to a terminal as one coloured line with the name of its key', async () => {
  expect((await send(`${gateway}/v1/pets`, { key: keys[1] })).status).toBe(200);
  // Waits for each line, because lines of two listeners may arrive in any order.
  await expect.poll(linesBehindWelcome).toEqual([expect.stringContaining('GET /v1/pets')]);
  expect((await send(`${core}/v1/pets`)).status).toBe(200);
  await expect.poll(linesBehindWelcome).toHaveLength(2);
  await ctl('keys', 'list');
  await ctl('keys', 'disable', idOf(keys[0] ?? ''));
  await expect
    .poll(linesBehindWelcome)
    .toEqual([
      expect.stringMatching(/^\d\d:\d\d:\d\d 200 GET \/v1\/pets \d+ ms pro demo pro$/),
      expect.stringMatching(/^\d\d:\d\d:\d\d 200 GET \/v1\/pets \d+ ms core$/),
      expect.stringMatching(/^\d\d:\d\d:\d\d key\.change \w{12} by \S+/),
      expect.stringMatching(/^\d\d:\d\d:\d\d 200 PATCH \/keys\/\w{12} \d+ ms operators$/),
    ]);
  expect(onTerminal.out()).toContain('\u001b[32m200');
  expect(onTerminal.out()).not.toContain('{"level"');
});

test("a changed token in the operators' token file is used by the terminal and the command line", async () => {
  await writeFile(ADMIN_TOKEN_FILE, 'the-new-token-of-the-operators');
  await sleep(1_000);
  // The terminal requests the name of a key when it is first used.
  await send(`${gateway}/v1/pets`, { key: keys[2] });
  const named = expect.stringMatching(/ 200 GET \/v1\/pets \d+ ms business demo business$/);
  await expect.poll(linesBehindWelcome).toContainEqual(named);
  expect((await ctl('keys', 'list')).code).toBe(0);
});

test('the next start, in a pipe, logs JSON and replaces each demo key that was disabled, revoked or rotated', async () => {
  const [disabled = '', kept, revoked = '', rotated = ''] = keys;
  expect((await ctl('keys', 'revoke', idOf(revoked), '--yes')).code).toBe(0);
  expect((await ctl('keys', 'rotate', idOf(rotated), '--grace', '0', '--yes')).code).toBe(0);
  onTerminal.child.stdin?.write('\u0003');
  await onTerminal.ended;
  // A database that was closed leaves no write-ahead log.
  await expect.poll(async () => (await readdir(DATA_DIR)).filter((name) => name.endsWith('-wal'))).toEqual([]);

  const inPipe = start({ ...FREE_PORTS, DATA_DIR });
  const again = await opened(inPipe);
  expect(again.keys[1]).toBe(kept);
  for (const [at, old] of [disabled, '', revoked, rotated].entries()) {
    expect(again.keys[at]).not.toBe(old);
    expect((await send(`${again.gateway}/v1/pets`, { key: again.keys[at] })).status).toBe(200);
  }
  await expect.poll(inPipe.out).toMatch(/^\{"level":30,.*"path":"\/v1\/pets".*\}$/m);
  inPipe.child.kill('SIGINT');
  await inPipe.ended;
});

test('npm start reports an unreachable Redis in a readable message without the password', async () => {
  const REDIS_URL = `redis://someone:hidden-word@127.0.0.1:${await freePort()}`;
  const { code, out, err } = await start({ ...FREE_PORTS, REDIS_URL, DATA_DIR: await temporaryFolder() }).ended;
  expect([code, err]).toEqual([
    1,
    `No Redis responds at ${new URL(REDIS_URL).host} (REDIS_URL). Start one there, or unset REDIS_URL to store limits locally.\n`,
  ]);
  expect(out).not.toContain('hidden-word');
});
