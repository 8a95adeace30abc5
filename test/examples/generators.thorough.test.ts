import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { startStack } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';
import type { Used } from '../support/use-store.ts';
import { GENERATORS, type Generator, generated } from './generated-clients.ts';
import { importIntoPostman, requestsOf, runInNewman } from './postman.ts';
import { usedUpKey } from './used-up-key.ts';

/** Generated clients add a pet with and without a status, get and list pets, and wait when they are refused. */

const stack = await startStack();

/** Once a key's tokens are used up, the next request is refused and must wait three seconds. */
const MINUTE = 20;

const refusalsOf = (key: string) =>
  stack.log.filter(({ keyId, status }) => keyId === idOf(key) && status === 429).length;

async function use(generator: Generator) {
  const client = await generated(generator, stack.gateway);
  const key = await usedUpKey(stack, MINUTE);
  const before = refusalsOf(key);
  const used = JSON.parse(await client(key)) as Used;
  return { ...used, refusals: refusalsOf(key) - before };
}

/** All clients run at the same time before the first test, because they mostly wait. */
const generators = GENERATORS.slice(0, thoroughly(GENERATORS.length, 1));
const ends = await Promise.allSettled(generators.map(use));

test.for(generators.map(({ name }, at) => [name, ends[at]] as const))('a client of %s makes all calls', ([, end]) => {
  if (end?.status !== 'fulfilled') throw end?.reason;
  const { created, sold, got, listed, plan, refusals } = end.value;
  expect(created).toEqual({ id: expect.any(Number), name: 'Spot', categoryId: 1, status: 'available' });
  expect(sold).toEqual({ id: expect.any(Number), name: 'Cleo 🐕', categoryId: 1, status: 'sold' });
  expect([got, plan]).toEqual([created, 'free']);
  expect(listed).toContainEqual(sold);
  expect(refusals).toBeGreaterThan(0);
});

test.skipIf(thoroughly(0, 1) === 1)('newman runs every request of an imported Postman collection', async () => {
  const requests = requestsOf((await importIntoPostman()).item);
  const add = requests.find(({ name }) => name === 'Add a pet');
  const { request } = add as NonNullable<typeof add>;
  const header = request.header.filter((one) => one.key !== 'Idempotency-Key');
  const body = { ...request.body, raw: '{"name":"Rex","categoryId":1}' };
  const name = 'Add a pet without a status';
  const without = { ...add, id: 'without', name, request: { ...request, header, body } };
  // Adds a pet first, because the other examples get it.
  const inOrder = [add, without, ...requests.filter((one) => one !== add)].filter((one) => one !== undefined);
  const key = await usedUpKey(stack, MINUTE);
  const ran = await runInNewman(inOrder, stack.gateway, key);
  const final = new Map(ran.map(({ name, status, text }) => [name, { status, text }]));
  expect([...final].map(([name, { status }]) => [name, status])).toEqual([
    ['Add a pet', 201],
    ['Add a pet without a status', 201],
    ['List pets', 200],
    ['Get a pet', 200],
    ['List orders', 200],
    ['Get your limits', 200],
  ]);
  expect(JSON.parse(final.get('Add a pet without a status')?.text ?? '')).toMatchObject({ status: 'available' });
  expect(ran.filter(({ status }) => status === 429).length).toBeGreaterThan(0);
});
