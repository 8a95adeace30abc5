import { expect, test } from 'vitest';
import { type CreateOptions, type StoreClient, StoreError } from '../../shared/client/client.ts';

/** Type checks of calls to the client, which never run. tsc reports each `@ts-expect-error` on a call that compiles. */

async function wrongCalls(store: StoreClient): Promise<void> {
  // @ts-expect-error a category is required
  await store.createPet({ name: 'x' });
  // @ts-expect-error a category is not a string
  await store.createPet({ name: 'x', categoryId: '1' });
  // @ts-expect-error a misspelt name
  await store.createPet({ nam: 'x', categoryId: 1 });
  // @ts-expect-error the store assigns the id
  await store.createPet({ id: 1n, name: 'x', categoryId: 1 });
  // @ts-expect-error not a status of pets
  await store.createPet({ name: 'x', categoryId: 1, status: 'placed' });
  // @ts-expect-error an id cannot be changed
  await store.changePet(1n, { id: 2n });
  // @ts-expect-error an id is not a string
  await store.getPet('1');
  // @ts-expect-error pets cannot be filtered by name
  await store.listPets({ name: 'x' });
  // @ts-expect-error not a status of pets
  store.pets({ status: 'placed' });
  // @ts-expect-error not a status of orders
  await store.listOrders({ status: 'sold' });
  // @ts-expect-error a pet is ordered by its id
  await store.createOrder({ pet: 1n });
  // @ts-expect-error not a status of orders
  await store.changeOrder(1n, { status: 'gone' });
  // @ts-expect-error only creations have idempotency keys
  await store.changeOrder(1n, { status: 'approved' }, { idempotencyKey: 'x' });
  const pet = await store.getPet(1n);
  // @ts-expect-error a misspelt name
  pet.nmae;
  // @ts-expect-error a bigint id does not mix with numbers
  pet.id + 1;
  // @ts-expect-error a misspelt name
  (await store.listOrders()).orders[0]?.stauts;
  // @ts-expect-error a misspelt name
  (await store.createOrder({ petId: 1n })).pet;
  // @ts-expect-error not a code of StoreError
  new StoreError('gone', 'It is gone.').code === 'lost';
}

async function rightCalls(store: StoreClient, options: CreateOptions): Promise<void> {
  await store.createPet({ name: 'x', categoryId: 1 });
  await store.createPet({ name: 'x', categoryId: 1n, status: 'sold' }, options);
  await store.changePet(1, { status: 'available' }, { signal: AbortSignal.abort(), timeoutMs: 100 });
  await store.listPets();
  await store.listOrders({ limit: 1, after: 1n, status: 'placed' }, { timeoutMs: 100 });
  await store.createOrder({ petId: 1 }, { idempotencyKey: 'x' });
}

test('an invalid call to the client does not compile, and a valid one does', () => {
  expect([wrongCalls, rightCalls]).toHaveLength(2);
});
