import { describe, expect, test } from 'vitest';
import { deletePet, insertPet, selectPets } from '../../core/store/queries.ts';
import { query, type Statement, type Store } from '../../core/store/store.ts';
import type { Pet, PetStatus } from '../../shared/schemas/pet.ts';
import { DATABASES, openStore } from '../support/databases.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const PETS = 10_000;

const add = (store: Store, name: string, status: PetStatus = 'available') =>
  store.write(() => insertPet({ name, categoryId: 1n, status }));

/** Adds pets fifty at a time, as many clients would. One of them is sold. */
async function addMany(store: Store, count: number): Promise<Pet[]> {
  const added: Pet[] = [];
  while (added.length < count) {
    const batch = Array.from({ length: 50 }, (_, at) => add(store, `pet ${at}`, at === 0 ? 'sold' : 'available'));
    added.push(...(await Promise.all(batch)));
  }
  return added;
}

describe.for(DATABASES)('on %s', ([name, empty]) => {
  test(`paging through ${PETS} pets during changes returns each remaining pet exactly once`, async () => {
    const url = await empty();
    const stack = await startStack({ DATABASE_URL: url });
    const store = await openStore(url);
    const there = await addMany(store, PETS);
    const leaving = there.filter((_, at) => at % 10 === 0).map(({ id }) => id);
    const staying = new Set(there.filter((_, at) => at % 10 !== 0).map(({ id }) => Number(id)));

    let walking = true;
    const unrest = (async () => {
      for (const id of leaving.sort(() => Math.random() - 0.5)) {
        if (!walking) break;
        await Promise.all([store.write(() => deletePet(id)), add(store, 'late')]);
      }
    })();
    const seen: number[] = [];
    let next: string | undefined = '/v1/pets?limit=100';
    while (next !== undefined) {
      const page: Awaited<ReturnType<typeof send>> = await send(stack.core + next);
      seen.push(...(page.json as { id: number }[]).map(({ id }) => id));
      next = /<([^>]+)>; rel="next"/.exec(String(page.headers.link ?? ''))?.[1];
      if (seen.length > 3 * PETS) break;
    }
    walking = false;
    await unrest;
    await store.close();
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect([...staying].filter((id) => !seen.includes(id))).toEqual([]);
  });

  test('lists are read in index order without sorting', async () => {
    const store = await openStore(await empty());
    await addMany(store, 2_000);
    for (const status of [undefined, 'sold' as const]) {
      const statement = selectPets({ limit: 5, after: 50n, status }).next().value as Statement;
      const plan = await explain(store, statement);
      expect(plan).toMatch(status === undefined ? /PRIMARY KEY|pets_pkey/ : /pets_by_status/);
      expect(plan).not.toMatch(/\bSort\b|TEMP B-TREE|Seq Scan|SCAN pets(?! USING)/);
    }
    await store.close();
  });

  async function explain(store: Store, { sql, values }: Statement): Promise<string> {
    if (name === 'SQLite')
      return JSON.stringify(await store.read(() => query(`EXPLAIN QUERY PLAN ${sql}`, ...values)), (_, value) =>
        typeof value === 'bigint' ? Number(value) : value,
      );
    await store.write(() => query('ANALYZE pets'));
    const literal = sql.replaceAll(/\$(\d)/g, (_, at) =>
      typeof values[at - 1] === 'string' ? `'${values[at - 1]}'` : String(values[at - 1]),
    );
    return JSON.stringify(await store.read(() => query(`EXPLAIN ${literal}`)));
  }
});
