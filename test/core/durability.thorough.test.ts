import type { ChildProcess } from 'node:child_process';
import { randomInt, randomUUID } from 'node:crypto';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SqliteStore } from '../../core/store/sqlite.ts';
import { query } from '../../core/store/store.ts';
import { post, send } from '../support/http.ts';
import { startService } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

const KILLS = 12;
const CLIENTS = 16;

/** The acknowledged pets, and the idempotency keys of pets that are sent again until they are acknowledged. */
interface Ledger {
  readonly acknowledged: Map<string, string>;
  readonly keys: Map<string, string>;
}

/**
 * One client, which adds pets with unique names until the core is killed. Half of the pets have idempotency keys. If
 * they were not acknowledged, they are sent again to the next core.
 */
async function addUntilKilled(core: string, ledger: Ledger, agent: http.Agent): Promise<void> {
  for (const [name, key] of ledger.keys)
    if (!ledger.acknowledged.has(name)) if (!(await addPet(core, name, key, ledger, agent))) return;
  for (;;) {
    const name = randomUUID();
    const key = Math.random() < 0.5 ? randomUUID() : undefined;
    if (key !== undefined) ledger.keys.set(name, key);
    if (!(await addPet(core, name, key, ledger, agent))) return;
  }
}

async function addPet(
  core: string,
  name: string,
  key: string | undefined,
  { acknowledged }: Ledger,
  agent: http.Agent,
): Promise<boolean> {
  try {
    const headers = key === undefined ? {} : { 'idempotency-key': key };
    const answer = await post(`${core}/v1/pets`, { name, categoryId: 1 }, { headers, agent });
    if (answer.status !== 201) throw new Error(`status ${answer.status}`);
    acknowledged.set(name, answer.text);
    return true;
  } catch (fault) {
    if (fault instanceof Error && fault.message.startsWith('status')) throw fault;
    return false;
  }
}

/** Waits for a number of acknowledgements rather than for a time, which would depend on the disk and the load. */
async function acknowledgedMore({ acknowledged }: Ledger, count: number, core: ChildProcess): Promise<void> {
  const wanted = acknowledged.size + count;
  while (acknowledged.size < wanted && core.exitCode === null && core.signalCode === null) await sleep(1);
}

async function allPets(core: string): Promise<Map<string, string[]>> {
  const byName = new Map<string, string[]>();
  for (let after = 0; ; ) {
    const page = (await send(`${core}/v1/pets?limit=100&after=${after}`)).json as { id: number; name: string }[];
    for (const pet of page) byName.set(pet.name, [...(byName.get(pet.name) ?? []), JSON.stringify(pet)]);
    if (page.length < 100) return byName;
    after = page.at(-1)?.id ?? 0;
  }
}

test(`${KILLS} kills of the core under load lose no acknowledged pet and duplicate none with an idempotency key`, async () => {
  const environment = { PORT: '0', DATABASE_URL: `sqlite:${await temporaryFolder()}/store.db`, LOG_LEVEL: 'warn' };
  const ledger: Ledger = { acknowledged: new Map(), keys: new Map() };
  for (let kill = 0; kill < KILLS; kill++) {
    const { child, addresses, ended } = await startService('core/main.ts', environment);
    const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS });
    const clients = Array.from({ length: CLIENTS }, () => addUntilKilled(addresses.core ?? '', ledger, agent));
    await Promise.race([acknowledgedMore(ledger, randomInt(1, 60), child), ...clients]);
    setTimeout(() => child.kill('SIGKILL'), Math.random() * 10);
    await Promise.all(clients);
    await ended;
    agent.destroy();
  }
  const { addresses } = await startService('core/main.ts', environment);
  const pets = await allPets(addresses.core ?? '');
  const lost = [...ledger.acknowledged].filter(([name, text]) => !pets.get(name)?.includes(text));
  const twice = [...ledger.keys.keys()].filter((name) => (pets.get(name)?.length ?? 0) > 1);
  process.stdout.write(
    `${KILLS} kills: ${ledger.acknowledged.size} pets acknowledged, ${lost.length} lost, ${twice.length} of ${ledger.keys.size} with an idempotency key were stored twice\n`,
  );
  expect(lost).toEqual([]);
  expect(twice).toEqual([]);
  expect(ledger.acknowledged.size).toBeGreaterThan(KILLS * 2);
}, 600_000);

test('a commit is acknowledged only once it is on disk, not just in a cache of the operating system', async () => {
  const store = new SqliteStore(`${await temporaryFolder()}/store.db`);
  const FULL = 2n;
  expect(await store.read(() => query('PRAGMA synchronous'))).toEqual([{ synchronous: FULL }]);
  expect(await store.read(() => query('PRAGMA journal_mode'))).toEqual([{ journal_mode: 'wal' }]);
  await store.close();
});
