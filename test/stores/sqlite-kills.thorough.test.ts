import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

const KILLS = thoroughly(100, 20);
const WRITER = 'test/support/sqlite-writer.ts';
const STEPS = ['create', 'update', 'ban', 'revoke'];

/** Lets a process make changes and kills it. @returns the steps that it acknowledged, by key */
async function writeUntilKilled(folder: string, first: number): Promise<Map<string, string[]>> {
  const { child, out, ended } = startProcess(process.execPath, [WRITER, folder, String(first)], {});
  await once(child.stdout as NodeJS.ReadableStream, 'data');
  await sleep(Math.random() * 60);
  child.kill('SIGKILL');
  const { err } = await ended;
  expect(err).toBe('');
  const acknowledged = new Map<string, string[]>();
  for (const line of out().split('\n').slice(1, -1)) {
    const [step = '', id = ''] = line.split(' ');
    acknowledged.set(id, [...(acknowledged.get(id) ?? []), step]);
  }
  return acknowledged;
}

/** What is stored of a key, as the steps that were made of it. */
async function made(storage: SqliteStorage, id: string, actions: ReadonlySet<string>): Promise<string[]> {
  const [key, revoked] = await storage.readMany([`key:${id}`, `revoked:${id}`]);
  const fields = key ?? revoked;
  const value = actions.has('update') ? 'updated' : 'created';
  const ban = fields?.banned_until === undefined ? {} : { banned_until: '1' };
  if (actions.has('revoke')) expect([key, revoked]).toEqual([undefined, { created_at: id, ...ban, revoked: '1' }]);
  else if (actions.has('create'))
    expect([key, revoked]).toEqual([{ created_at: id, one: value, two: value, ...ban }, undefined]);
  else expect([key, revoked]).toEqual([undefined, undefined]);
  return STEPS.filter((step) => actions.has(step) || (step === 'ban' && fields?.banned_until !== undefined));
}

/** What was done of each key, by the audit log from an entry on; and the newest entry. */
async function actionsSince(storage: SqliteStorage, known: string | undefined) {
  const actions = new Map<string, Set<string>>();
  let newest = known;
  for (let after: string | undefined; ; ) {
    const page = await storage.tail('audit', { after, count: 500 });
    if (after === undefined) newest = page[0]?.[0] ?? known;
    for (const [id, { target = '', action = '' }] of page) {
      if (id === known) return { actions, newest };
      actions.set(target, (actions.get(target) ?? new Set()).add(action));
    }
    after = page.at(-1)?.[0];
    if (after === undefined) return { actions, newest };
  }
}

test(`kill -9 ${KILLS} times: all that was acknowledged is there, and nothing is half made`, async () => {
  const folder = await temporaryFolder();
  const all = new Map<string, string[]>();
  let next = 1;
  let newest: string | undefined;
  for (let kill = 0; kill < KILLS; kill++) {
    const acknowledged = await writeUntilKilled(folder, next);
    for (const [id, steps] of acknowledged) all.set(id, steps);
    const storage = new SqliteStorage(folder, { auditLength: 1e6 });
    const isLast = kill === KILLS - 1;
    // At the end all that was ever acknowledged is looked at once more.
    const { actions, newest: last } = await actionsSince(storage, isLast ? undefined : newest);
    newest = last;
    // A key of which nothing was acknowledged may be there too.
    const begun = Math.max(next, ...[...acknowledged.keys(), ...actions.keys()].map(Number)) + 4;
    const ids = isLast ? [...all.keys()] : Array.from({ length: begun - next }, (_, at) => `${next + at}`);
    for (const id of ids) {
      const steps = await made(storage, id, actions.get(id) ?? new Set());
      const known = all.get(id) ?? [];
      expect(steps.slice(0, known.length), `of key ${id}`).toEqual(known);
      expect(steps.length).toBeLessThanOrEqual(known.length + 1);
    }
    await storage.close();
    next = begun;
  }
  expect(all.size).toBeGreaterThan(KILLS);
  expect((await readdir(folder)).sort()).toEqual(['gateway.db', 'lock', 'reserve']);
});
