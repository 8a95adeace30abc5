import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createStoreClient } from '../../shared/client/client.ts';
import { INT64_MAX, INT64_MIN } from '../../shared/schemas/int64.ts';
import { faultyCore } from '../support/faulty-core.ts';
import { startStack } from '../support/stack.ts';
import { answer, clientOf, coreThatAnswers, faultOf, PET } from '../support/store-client.ts';

/** A client with its own real core. */
const freshStore = async () => clientOf((await startStack()).core);

async function all<T>(entries: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const entry of entries) found.push(entry);
  return found;
}

test('the client creates, reads, changes, lists and removes pets', async () => {
  const store = await freshStore();
  const rex = await store.createPet({ name: 'Zoë 🐈', categoryId: 3 });
  expect(rex).toEqual({ id: 1n, name: 'Zoë 🐈', categoryId: 3n, status: 'available' });
  expect(await store.getPet(rex.id)).toEqual(rex);
  expect(await store.getPet(1)).toEqual(rex);
  expect(await store.changePet(rex.id, { status: 'sold' })).toEqual({ ...rex, status: 'sold' });
  const fido = await store.createPet({ name: 'Fido', categoryId: 4n, status: 'pending' });
  expect(await store.listPets({ limit: 1 })).toMatchObject({ pets: [{ id: 1n }], next: 1n });
  expect(await store.listPets({ after: 1n })).toEqual({ pets: [fido], next: undefined });
  expect(await store.listPets({ status: 'pending' })).toMatchObject({ pets: [fido] });
  expect(await store.removePet(fido.id)).toBeUndefined();
  expect((await store.listPets()).pets).toHaveLength(1);
});

test('the client creates, reads, lists and changes orders', async () => {
  const store = await freshStore();
  const pet = await store.createPet({ name: 'Rex', categoryId: 1 });
  const order = await store.createOrder({ petId: pet.id });
  expect(order).toEqual({ id: 1n, petId: pet.id, status: 'placed', createdAt: expect.stringMatching(/^20.*Z$/) });
  expect(await store.getPet(pet.id)).toMatchObject({ status: 'pending' });
  expect(await store.getOrder(order.id)).toEqual(order);
  expect(await store.listOrders({ status: 'placed' })).toMatchObject({ orders: [order] });
  expect(await store.changeOrder(order.id, { status: 'cancelled' })).toMatchObject({ status: 'cancelled' });
  await store.createOrder({ petId: pet.id });
  expect((await all(store.orders())).map(({ id }) => id)).toEqual([1n, 2n]);
  expect((await all(store.orders({ status: 'placed' }))).map(({ id }) => id)).toEqual([2n]);
});

test('the smallest and largest int64 are exact in bodies, paths and queries, in both directions', async () => {
  const store = await freshStore();
  for (const categoryId of [INT64_MIN, INT64_MAX, 2n ** 53n + 1n]) {
    const pet = await store.createPet({ name: 'Rex', categoryId });
    expect(pet.categoryId).toBe(categoryId);
    expect(await store.getPet(pet.id)).toEqual(pet);
  }
  expect((await store.listPets({ after: INT64_MIN })).pets).toHaveLength(3);
  const core = await coreThatAnswers(answer('200 OK', PET.replace('7', String(INT64_MAX))));
  expect(await clientOf(core.url).getPet(INT64_MAX)).toMatchObject({ id: INT64_MAX });
  expect(core.heads[0]).toMatch(/^GET \/v1\/pets\/9223372036854775807 /);
});

test('a value that is inexact or invalid is refused before it is sent', async () => {
  const core = await coreThatAnswers(answer('200 OK', PET));
  const store = clientOf(core.url);
  const [inexact, range] = ['must be a bigint beyond 2^53', 'must be an integer from -2^63 to 2^63-1'];
  const refused = [
    [store.createPet({ name: 'Rex', categoryId: 2 ** 53 + 2 }), `categoryId ${inexact}`],
    [store.createPet({ name: '', categoryId: 1.5 }), `name must have 1 to 200 characters; categoryId ${range}`],
    [store.changePet(1n, {}), 'it changes nothing'],
    [store.getPet(2n ** 63n), `id ${range}`],
    [store.getPet(2 ** 63), `id ${range}`],
    [store.getOrder(1.5), `id ${range}`],
    [store.listPets({ after: -(2 ** 60) }), `after ${inexact}`],
  ] as const;
  for (const [call, why] of refused) {
    const message = `The request is not valid: ${why}.`;
    expect(await faultOf(call)).toMatchObject({ code: 'invalid_request', status: 0, message });
  }
  expect(core.heads).toEqual([]);
});

test('the iterator reads each page once, and only as many pages as needed', async () => {
  const store = await freshStore();
  const created = Array.from({ length: 230 }, (_, at) =>
    store.createPet({ name: `pet ${at}`, categoryId: at, status: at % 2 ? 'sold' : 'pending' }),
  );
  const ids = (await Promise.all(created)).map(({ id }) => id).sort((a, b) => Number(a - b));
  expect((await all(store.pets())).map(({ id }) => id)).toEqual(ids);
  const sold = await all(store.pets({ status: 'sold' }));
  expect(sold).toHaveLength(115);
  expect(new Set(sold.map(({ status }) => status))).toEqual(new Set(['sold']));
  for await (const pet of store.pets()) {
    expect(pet.id).toBe(ids[0]);
    break;
  }
});

test('an error from the core is a StoreError with its code, status and message', async () => {
  const store = await freshStore();
  const missing = await faultOf(store.getPet(99n));
  expect(missing).toMatchObject({ name: 'StoreError', code: 'not_found', status: 404, message: 'There is no pet 99.' });
  for (const call of [store.removePet(99n), store.getOrder(99n), store.changePet(99n, { name: 'x' })])
    expect(await faultOf(call)).toMatchObject({ code: 'not_found', status: 404 });
  expect(await faultOf(store.createOrder({ petId: 99n }))).toMatchObject({ code: 'conflict', status: 409 });
  expect(await faultOf(store.listPets({ limit: 101 }))).toMatchObject({ code: 'invalid_parameter', status: 400 });
});

test('the client sends its token', async () => {
  const { core } = await startStack({ CORE_TOKEN: 'token-of-the-core' });
  expect(await clientOf(core, { token: 'token-of-the-core' }).listPets()).toMatchObject({ pets: [] });
  expect(await faultOf(clientOf(core).listPets())).toMatchObject({ code: 'unauthorized', status: 401 });
  expect(() => createStoreClient({ url: core, token: 'with a line end\n' })).toThrow(TypeError);
});

test('the same idempotency key returns the same response, and another body with it is a conflict', async () => {
  const store = await freshStore();
  const sent = { name: 'Rex', categoryId: 1 };
  const first = await store.createPet(sent, { idempotencyKey: 'import 1' });
  expect(await store.createPet(sent, { idempotencyKey: 'import 1' })).toEqual(first);
  expect((await store.createPet(sent)).id).not.toBe(first.id);
  const other = store.createPet({ ...sent, name: 'Fido' }, { idempotencyKey: 'import 1' });
  expect(await faultOf(other)).toMatchObject({ code: 'conflict' });
});

test('an idempotency key that is not a valid header value is refused before it is sent', async () => {
  const { core } = await startStack();
  const store = clientOf(core, { connections: 1 });
  for (const idempotencyKey of ['', 'a\nb', 'ключ', 'a"b', 'x'.repeat(256)]) {
    const { code } = await faultOf(store.createOrder({ petId: 1 }, { idempotencyKey }));
    expect(code).toBe('invalid_request');
  }
  expect(await store.listPets()).toMatchObject({ pets: [] });
});

test.for([
  ['text', answer('200 OK', 'hello'), 200],
  ['another shape', answer('200 OK', '{"id":7}'), 200],
  ['an id beyond int64', answer('200 OK', PET.replace('7', '9223372036854775808')), 200],
  ['no body', answer('200 OK', ''), 200],
  ['an error of another shape', answer('404 Not Found', '<h1>404</h1>'), 404],
  ['a redirection', answer('302 Found', '', 'location: /\r\n'), 302],
  ['a response other than HTTP', 'SSH-2.0-OpenSSH_9.6\r\n', 0],
  ['headers of 20 kB', answer('200 OK', PET, `x: ${'x'.repeat(20_000)}\r\n`), 0],
  ['two lengths', answer('200 OK', PET, 'content-length: 2\r\n'), 0],
] as const)('%s is reported as an invalid response', async ([, garbage, status]) => {
  const core = await coreThatAnswers(garbage);
  expect(await faultOf(clientOf(core.url).getPet(7n))).toMatchObject({ code: 'invalid_answer', status });
  expect(core.heads).toHaveLength(1);
});

test('a link to the next page without a valid start is reported as an invalid response', async () => {
  const core = await coreThatAnswers(answer('200 OK', '[]', 'link: </v1/pets?after=x>; rel="next"\r\n'));
  expect(await faultOf(clientOf(core.url).listPets())).toMatchObject({ code: 'invalid_answer', status: 200 });
  const other = await coreThatAnswers(answer('200 OK', `[${PET}]`, 'link: </v1/pets>; rel="first"\r\n'));
  expect(await clientOf(other.url).listPets()).toMatchObject({ pets: [{ id: 7n }], next: undefined });
});

test('additional members from a newer core are accepted', async () => {
  const core = await coreThatAnswers(
    answer('200 OK', PET.replace('}', ',"colour":"brown"}')),
    answer('418 Teapot', '{"code":"teapot","message":"Short and stout.","status":418,"hint":"tea"}'),
  );
  const store = clientOf(core.url);
  expect(await store.getPet(7n)).toEqual({ id: 7n, name: 'Rex', categoryId: 1n, status: 'sold' });
  expect(await faultOf(store.getPet(7n))).toMatchObject({ code: 'teapot', status: 418, message: 'Short and stout.' });
});

test('closing the client finishes calls in flight and refuses later ones', async () => {
  const url = await faultyCore((socket) => setTimeout(() => socket.write(answer('200 OK', PET)), 100));
  const store = createStoreClient({ url });
  const underway = store.getPet(7n);
  await sleep(20);
  await store.close();
  await store.close();
  expect(await underway).toMatchObject({ id: 7n });
  expect(await faultOf(store.getPet(7n))).toMatchObject({ code: 'aborted', message: 'The client is closed.' });
});

test('a URL that is not an origin is refused immediately', () => {
  expect(() => createStoreClient({ url: 'core:7001' })).toThrow();
  const fault = new TypeError('url must be an origin such as http://127.0.0.1:7001.');
  for (const url of ['http://127.0.0.1:7001/v1', 'http://u:p@127.0.0.1', 'http://a/?x', 'http://a/#x', 'ftp://a', ''])
    expect(() => createStoreClient({ url })).toThrow(fault);
});
