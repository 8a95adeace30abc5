import { expect, expectTypeOf, test } from 'vitest';
import { type CreateOptions, type StoreClient, StoreError, type StoreErrorCode } from '../../shared/client/client.ts';
import type { Order } from '../../shared/schemas/order.ts';
import type { Pet } from '../../shared/schemas/pet.ts';

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

test('results of the client have the types of the schemas', () => {
  expectTypeOf<Pet>().toEqualTypeOf<{
    id: bigint;
    name: string;
    categoryId: bigint;
    status: 'available' | 'pending' | 'sold';
  }>();
  expectTypeOf<Awaited<ReturnType<StoreClient['getPet']>>>().toEqualTypeOf<Pet>();
  expectTypeOf<Awaited<ReturnType<StoreClient['createPet']>>>().toEqualTypeOf<Pet>();
  expectTypeOf<Awaited<ReturnType<StoreClient['changePet']>>>().toEqualTypeOf<Pet>();
  expectTypeOf<Awaited<ReturnType<StoreClient['removePet']>>>().toEqualTypeOf<void>();
  expectTypeOf<Awaited<ReturnType<StoreClient['listPets']>>['pets']>().toEqualTypeOf<readonly Pet[]>();
  expectTypeOf<Awaited<ReturnType<StoreClient['listPets']>>['next']>().toEqualTypeOf<bigint | undefined>();
  expectTypeOf<ReturnType<StoreClient['pets']>>().toExtend<AsyncIterable<Pet>>();
  expectTypeOf<Awaited<ReturnType<StoreClient['createOrder']>>>().toEqualTypeOf<Order>();
  expectTypeOf<Awaited<ReturnType<StoreClient['listOrders']>>['orders']>().toEqualTypeOf<readonly Order[]>();
  expectTypeOf<ReturnType<StoreClient['orders']>>().toExtend<AsyncIterable<Order>>();
});

test('an invalid call to the client does not compile, and a valid one does', () => {
  expect([wrongCalls, rightCalls]).toHaveLength(2);
});

test('the type of StoreError lists its codes', () => {
  expectTypeOf<StoreErrorCode>().toExtend<string>();
  expectTypeOf<'conflict' | 'unreachable' | 'timeout' | 'aborted' | 'invalid_answer'>().toExtend<StoreErrorCode>();
  expectTypeOf<StoreError['code']>().not.toEqualTypeOf<string>();
});
