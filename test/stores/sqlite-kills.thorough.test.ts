import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

const KILLS = 12;
const WRITER = 'test/support/sqlite-writer.ts';
const STEPS = ['create', 'update', 'ban', 'revoke'];

/** Starts a process that makes changes, then kills it. @returns the steps that it acknowledged, by key */
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

/** The steps of a key that the stored data contains. */
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

async function actionsOf(storage: SqliteStorage): Promise<Map<string, Set<string>>> {
  const actions = new Map<string, Set<string>>();
  for (const [, { target = '', action = '' }] of await storage.tail('audit', { count: 1e6 }))
    actions.set(target, (actions.get(target) ?? new Set()).add(action));
  return actions;
}

test(`${KILLS} SIGKILLs lose no acknowledged change and leave none incomplete`, async () => {
  const folder = await temporaryFolder();
  const all = new Map<string, string[]>();
  let next = 1;
  for (let kill = 0; kill < KILLS; kill++) {
    const acknowledged = await writeUntilKilled(folder, next);
    for (const [id, steps] of acknowledged) all.set(id, steps);
    const storage = new SqliteStorage(folder, { auditLength: 1e6 });
    const actions = await actionsOf(storage);
    // A key may be stored although none of its steps was acknowledged.
    const begun = Math.max(next, ...[...acknowledged.keys(), ...actions.keys()].map(Number)) + 4;
    const ids = kill === KILLS - 1 ? [...all.keys()] : Array.from({ length: begun - next }, (_, at) => `${next + at}`);
    for (const id of ids) {
      const steps = await made(storage, id, actions.get(id) ?? new Set());
      const known = all.get(id) ?? [];
      expect(steps.slice(0, known.length), `key ${id}`).toEqual(known);
      expect(steps.length).toBeLessThanOrEqual(known.length + 1);
    }
    await storage.close();
    next = begun;
  }
  expect(all.size).toBeGreaterThan(KILLS);
  expect((await readdir(folder)).sort()).toEqual(['gateway.db', 'lock', 'reserve']);
});
