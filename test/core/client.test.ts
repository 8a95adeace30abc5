import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createStoreClient } from '../../shared/client/client.ts';
import { INT64_MAX, INT64_MIN } from '../../shared/schemas/int64.ts';
import { cleanUp } from '../support/clean-up.ts';
import { faultyCore } from '../support/faulty-core.ts';
import { freePort } from '../support/port.ts';
import { startStack } from '../support/stack.ts';
import { answer, clientOf, coreThatAnswers, faultOf, PET, timed, unavailable } from '../support/store-client.ts';
import { fact, TIMED } from '../support/timed.ts';

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
  const [inexact, range] = ['must be a bigint if beyond 2^53', 'must be an integer from -2^63 to 2^63-1'];
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

test('a URL that is not an origin, and limits below one, are refused immediately', () => {
  expect(() => createStoreClient({ url: 'core:7001' })).toThrow();
  const fault = new TypeError('url must be an origin such as http://127.0.0.1:7001.');
  for (const url of ['http://127.0.0.1:7001/v1', 'http://u:p@127.0.0.1', 'http://a/?x', 'http://a/#x', 'ftp://a', ''])
    expect(() => createStoreClient({ url })).toThrow(fault);
  for (const timeoutMs of [0, -5, Number.NaN])
    expect(() => createStoreClient({ url: 'http://a', timeoutMs })).toThrow('timeoutMs must be a number from 1.');
  for (const connections of [0, -1, 1.5])
    expect(() => createStoreClient({ url: 'http://a', connections })).toThrow('connections must be a whole number');
});

test("a call's own timeout below one is refused before anything is sent", async () => {
  const core = await coreThatAnswers(answer('200 OK', PET));
  const store = clientOf(core.url);
  for (const timeoutMs of [0, -5, Number.NaN]) {
    const fault = await faultOf(store.createOrder({ petId: 7n }, { timeoutMs }));
    expect(fault).toMatchObject({ code: 'invalid_request', message: 'timeoutMs must be a number from 1.', status: 0 });
  }
  expect(core.heads).toEqual([]);
  expect(await store.getPet(7n, { timeoutMs: 2 ** 31 })).toMatchObject({ id: 7n });
});

test('the timeout covers the whole call, including the queue for a connection', TIMED, async () => {
  const store = clientOf(await faultyCore(() => {}), { timeoutMs: 300, connections: 1 });
  // Node's timers count from the start of the current event loop turn, which may be long ago on a busy machine.
  await sleep(1);
  const [first, second] = await Promise.all([
    timed(faultOf(store.getPet(1n))),
    timed(faultOf(store.removePet(1n, { timeoutMs: 100 }))),
  ]);
  await fact(() => {
    expect([first.result.code, first.result.status, second.result.code]).toEqual(['timeout', 0, 'timeout']);
  });
  expect(first.ms).toBeGreaterThan(290);
  expect(first.ms).toBeLessThan(600);
  expect(second.ms).toBeGreaterThan(90);
  expect(second.ms).toBeLessThan(280);
});

test('an endless response is aborted at the timeout', TIMED, async () => {
  const core = await coreThatAnswers('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{');
  const { result, ms } = await timed(faultOf(clientOf(core.url).getPet(1n, { timeoutMs: 100 })));
  await fact(() => expect(result.code).toBe('timeout'));
  expect(ms).toBeLessThan(400);
});

test('the caller can abort a call before it is sent, in flight and between attempts', TIMED, async () => {
  const silent = clientOf(await faultyCore(() => {}));
  expect(await faultOf(silent.getPet(1n, { signal: AbortSignal.abort() }))).toMatchObject({ code: 'aborted' });
  const leaving = new AbortController();
  const underway = faultOf(silent.getPet(1n, { signal: leaving.signal }));
  setTimeout(() => leaving.abort('no longer needed'), 50);
  const left = await underway;
  await fact(() => expect(left).toMatchObject({ code: 'aborted', status: 0, cause: 'no longer needed' }));

  const core = await coreThatAnswers(unavailable('retry-after: 1\r\n'));
  const waiting = new AbortController();
  const paused = timed(faultOf(clientOf(core.url).getPet(1n, { signal: waiting.signal })));
  setTimeout(() => waiting.abort(), 100);
  const { result, ms } = await paused;
  expect(result.code).toBe('aborted');
  expect(ms).toBeLessThan(500);
  expect(core.heads).toHaveLength(1);
});

test('iterating over pages requests no further page once it is aborted', async () => {
  const core = await coreThatAnswers(answer('200 OK', `[${PET}]`, 'link: </v1/pets?after=7>; rel="next"\r\n'));
  const leaving = new AbortController();
  const walk = clientOf(core.url).pets({ status: 'sold' }, { signal: leaving.signal });
  expect(await walk.next()).toMatchObject({ value: { id: 7n } });
  leaving.abort();
  expect(await faultOf(walk.next())).toMatchObject({ code: 'aborted' });
  expect(core.heads.map((head) => head.split(' ')[1])).toEqual(['/v1/pets?limit=100&status=sold']);
});

test('a timeout signal from the caller is reported as a timeout', async () => {
  const store = clientOf(await faultyCore(() => {}));
  expect(await faultOf(store.getPet(1n, { signal: AbortSignal.timeout(50) }))).toMatchObject({ code: 'timeout' });
});

test('other calls can use the connection of aborted calls', TIMED, async () => {
  const heads: string[] = [];
  const url = await faultyCore((socket, head) => {
    if (heads.push(head) > 1) socket.write(answer('200 OK', PET));
  });
  const store = clientOf(url, { connections: 1 });
  // The first call holds the only connection until long after the waiting ones have timed out.
  const givenUp = [200, 50, 50, 50, 50].map((timeoutMs) => faultOf(store.getPet(1n, { timeoutMs })));
  for (const fault of await Promise.all(givenUp)) expect(fault.code).toBe('timeout');
  expect(await store.getPet(7n)).toMatchObject({ id: 7n });
  expect(heads.filter((head) => head.includes('/pets/1 '))).toHaveLength(1);
});

test('a core that is not running is reported as unreachable after three attempts', TIMED, async () => {
  const store = clientOf(`http://127.0.0.1:${await freePort()}`);
  const { result, ms } = await timed(faultOf(store.getPet(1n)));
  await fact(() => {
    expect(result).toMatchObject({ code: 'unreachable', status: 0, cause: { code: 'ECONNREFUSED' } });
  });
  expect(ms).toBeGreaterThan(120);
  expect(ms).toBeLessThan(1_000);
});

test('a call whose connection breaks is sent three times for GET and POST, and once for PATCH and DELETE', async () => {
  const core = await coreThatAnswers(undefined);
  const store = clientOf(core.url);
  const attempts = async (call: Promise<unknown>) => {
    const before = core.heads.length;
    expect(await faultOf(call)).toMatchObject({ code: 'unreachable', status: 0 });
    return core.heads.length - before;
  };
  expect(await attempts(store.listPets())).toBe(3);
  expect(await attempts(store.createPet({ name: 'Rex', categoryId: 1 }))).toBe(3);
  expect(await attempts(store.changePet(1n, { name: 'Rex' }))).toBe(1);
  expect(await attempts(store.removePet(1n))).toBe(1);
  const keys = core.heads.slice(3, 6).map((head) => /^idempotency-key: "([\w-]{36})"\r$/im.exec(head)?.[1]);
  expect(keys[0]).toBeDefined();
  expect(new Set(keys).size).toBe(1);
});

test('PATCH and DELETE are retried if they cannot have reached the core', async () => {
  const port = await freePort();
  const store = clientOf(`http://127.0.0.1:${port}`);
  const changed = store.changePet(7n, { name: 'Rex' });
  const removed = store.removePet(7n);
  // The third attempt is made at least 125 ms after the first.
  await sleep(20);
  const late = http.createServer((request, response) => {
    if (request.method === 'PATCH') response.end(PET);
    else response.writeHead(204).end();
  });
  cleanUp(() => late.close());
  late.listen(port, '127.0.0.1');
  await once(late, 'listening');
  expect(await changed).toMatchObject({ id: 7n });
  expect(await removed).toBeUndefined();
});

/** A proxy in front of a real core. It cuts the connection instead of returning the first response. */
function lossyWay(core: string): Promise<string> {
  let lost = false;
  return faultyCore((socket, request) => {
    const way = net.connect(Number(new URL(core).port), '127.0.0.1');
    way.on('error', () => {}).write(request, 'latin1');
    way.on('data', (chunk) => {
      if (lost) socket.write(chunk);
      else socket.destroy();
      lost = true;
    });
    cleanUp(() => way.destroy());
  });
}

test('a POST whose response was lost is retried, and its pet exists once', async () => {
  const { core } = await startStack();
  const store = clientOf(await lossyWay(core));
  const pet = await store.createPet({ name: 'Rex', categoryId: 1 });
  expect(pet.id).toBe(1n);
  expect((await clientOf(core).listPets()).pets).toEqual([pet]);
});

test.for(['502 Bad Gateway', '503 Service Unavailable', '504 Gateway Timeout'])(
  '%s is retried, whatever its body',
  async (status) => {
    const core = await coreThatAnswers(answer(status, '<h1>proxy</h1>'), unavailable(), answer('200 OK', PET));
    expect(await clientOf(core.url).getPet(7n)).toMatchObject({ id: 7n });
    expect(core.heads).toHaveLength(3);
  },
);

test('an unavailable core gets three attempts, but only one for PATCH or after any other error', async () => {
  const core = await coreThatAnswers(unavailable());
  const store = clientOf(core.url);
  expect(await faultOf(store.getPet(7n))).toMatchObject({ code: 'unavailable', status: 503, message: 'Not now.' });
  expect(core.heads).toHaveLength(3);
  expect(await faultOf(store.changePet(7n, { name: 'Rex' }))).toMatchObject({ code: 'unavailable' });
  expect(core.heads).toHaveLength(4);
  const broken = await coreThatAnswers(answer('500 Oh', '{"code":"internal_error","message":"Oh.","status":500}'));
  expect(await faultOf(clientOf(broken.url).getPet(7n))).toMatchObject({ code: 'internal_error', status: 500 });
  expect(broken.heads).toHaveLength(1);
});

test('the client respects Retry-After if the timeout allows, and reports it', TIMED, async () => {
  const core = await coreThatAnswers(unavailable('retry-after: 1\r\n'), answer('200 OK', PET));
  const { ms } = await timed(clientOf(core.url).getPet(7n));
  expect(ms).toBeGreaterThan(1_000);
  const inAMinute = new Date(Date.now() + 60_000).toUTCString();
  for (const [after, least, most] of [
    ['60', 60, 60],
    [inAMinute, 50, 61],
    ['99999999999999', 99_999_999_999_999, 99_999_999_999_999],
  ] as const) {
    const later = await coreThatAnswers(unavailable(`retry-after: ${after}\r\n`));
    const { result, ms: soon } = await timed(faultOf(clientOf(later.url).getPet(7n)));
    await fact(() => {
      expect(result).toMatchObject({ code: 'unavailable' });
      expect(result.retryAfterSeconds).toBeGreaterThanOrEqual(least);
      expect(result.retryAfterSeconds).toBeLessThanOrEqual(most);
      expect(later.heads).toHaveLength(1);
    });
    expect(soon).toBeLessThan(500);
  }
});
