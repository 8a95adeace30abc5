import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile, stat } from 'node:fs/promises';
import { expect, test } from 'vitest';
import type { Activity } from '../../gateway/stores/activity-entry.ts';
import { post, send } from '../support/http.ts';
import { parsedLines } from '../support/log.ts';
import { startService } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';

const FULL_AT_BYTES = 6_000;
const key = ADMIN_TOKEN;

/** An embedded gateway that can write at most this much to one file. */
async function startGateway(DATA_DIR: string, mostBytes: number | 'unlimited') {
  const environment = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR, CORE_URL: 'http://127.0.0.1:1' };
  const within = ['prlimit', `--fsize=${mostBytes}:`];
  const { child, out, addresses } = await startService('gateway/main.ts', environment, within);
  const admin = addresses.admin as string;
  const lines = parsedLines(out);
  return {
    issueKey: async () =>
      ((await post(`${admin}/keys`, { name: 'test', plan: 'free' }, { key })).json as { id: string }).id,
    patch: (id: string, body: unknown) => post(`${admin}/keys/${id}`, body, { method: 'PATCH', key }),
    activity: async () => ((await send(`${admin}/activity`, { key })).json as { activity: Activity[] }).activity,
    lost: () => lines().filter(({ msg }) => msg === 'a change is in force, but the activity does not have it'),
    makeRoom: () => execFileSync('prlimit', ['--pid', String(child.pid), '--fsize=unlimited:']),
    async stop() {
      child.kill('SIGKILL');
      await once(child, 'close');
    },
  };
}

test('after a full disk, entries are recorded again, and a restart finds each of them', async () => {
  const DATA_DIR = await temporaryFolder();
  const file = `${DATA_DIR}/activity.jsonl`;
  const full = await startGateway(DATA_DIR, FULL_AT_BYTES);
  const id = await full.issueKey();
  let names = 0;
  const rename = async () => {
    const name = `name ${++names}`;
    expect((await full.patch(id, { name, reason: 'x'.repeat(500) })).status).toBe(200);
    return name;
  };
  while ((await stat(file)).size < FULL_AT_BYTES) await rename();
  await rename();
  await expect.poll(full.lost).toHaveLength(2);
  const torn = await readFile(file, 'utf8');
  expect([torn.length, torn.endsWith('\n')]).toEqual([FULL_AT_BYTES, false]);

  full.makeRoom();
  const [name, newest] = [await rename(), await rename()];
  const told = await full.activity();
  expect(told.slice(0, 2).map(({ changes }) => changes[0]?.to)).toEqual([newest, name]);
  await full.stop();
  const after = await startGateway(DATA_DIR, 'unlimited');
  expect(await after.activity()).toEqual(told);
  expect(told).toHaveLength(1 + names - 2);
  // The half line is still there, as a line of its own.
  const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
  expect(lines.length).toBe(told.length + 1);
});
