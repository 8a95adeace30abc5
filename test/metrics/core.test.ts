import { DatabaseSync } from 'node:sqlite';
import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { startStack } from '../support/stack.ts';

test('store failures are counted, starting from 0, and violations of store rules are not', async () => {
  const stack = await startStack();
  const errors = async (kind: string) => (await scrape(stack.core)).sum('core_store_errors_total', { kind });
  expect([await errors('unavailable'), await errors('failed')]).toEqual([0, 0]);
  expect((await post(`${stack.core}/v1/store/orders`, { petId: 17 })).status).toBe(409);
  expect((await send(`${stack.core}/v1/pets/17`)).status).toBe(404);
  expect([await errors('unavailable'), await errors('failed')]).toEqual([0, 0]);

  const other = new DatabaseSync(`${stack.directory}/store.db`);
  other.exec('BEGIN EXCLUSIVE');
  const refused = await post(`${stack.core}/v1/pets`, { name: 'Rex', categoryId: 1 });
  other.exec('DROP TABLE orders; COMMIT');
  other.close();
  expect(refused.status).toBe(503);
  expect([await errors('unavailable'), await errors('failed')]).toEqual([1, 0]);

  expect((await send(`${stack.core}/v1/store/orders`)).status).toBe(500);
  expect([await errors('unavailable'), await errors('failed')]).toEqual([1, 1]);
});
