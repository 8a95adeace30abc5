import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { faultyCore } from '../support/faulty-core.ts';
import { freePort } from '../support/port.ts';
import { startStack } from '../support/stack.ts';
import { answer, clientOf, coreThatAnswers, faultOf, PET, timed, unavailable } from '../support/store-client.ts';
import { fact, TIMED } from '../support/timed.ts';

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
  const later = await coreThatAnswers(unavailable('retry-after: 60\r\n'));
  const { result, ms: soon } = await timed(faultOf(clientOf(later.url).getPet(7n)));
  await fact(() => {
    expect(result).toMatchObject({ code: 'unavailable', retryAfterSeconds: 60 });
    expect(later.heads).toHaveLength(1);
  });
  expect(soon).toBeLessThan(500);
});
