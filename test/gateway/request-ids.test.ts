import { execFileSync } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { okTo } from '../support/faulty-core.ts';
import { post, send } from '../support/http.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

/** A client chooses its X-Request-Id freely. The core hears it with a suffix that no other attempt has. */

const READS = 450;
/** All that a gateway may have to one core: 16 shared connections, and 64 for one request at a time. */
const MOST_CONNECTIONS = 16 + 64;
/** Two requests at once need three. A stalled machine may take more. */
const MOST_IN_TURN = 12;

/** Counts the connections that a server of this process accepts. */
function countConnections(url: string): () => number {
  const port = Number(new URL(url).port);
  let accepted = 0;
  const note = (message: unknown) => {
    if ((message as { socket: Socket }).socket.localPort === port) accepted += 1;
  };
  subscribe('net.server.socket', note);
  cleanUp(() => void unsubscribe('net.server.socket', note));
  return () => accepted;
}

/** Reads a list with one key while another key reads too. Returns the connections that the core has accepted. */
async function connectionsFor(idOf: (at: number) => string, isAtOnce: boolean): Promise<number> {
  const stack = await startStack();
  const connections = countConnections(stack.core);
  const [key, another] = [await stack.issueKey(UNLIMITED), await stack.issueKey(UNLIMITED)];
  const statuses = new Map<number, number>();
  const read = async (of: string, id: string) => {
    const { status } = await send(`${stack.gateway}/v1/pets`, { key: of, headers: { 'x-request-id': id } });
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  };
  const reads: Promise<void>[] = [];
  for (let at = 0; at < READS; at++) {
    reads.push(read(key, idOf(at)));
    if (at % 10 === 0) reads.push(read(another, `another-${at}`));
    if (!isAtOnce) await Promise.all(reads);
  }
  await Promise.all(reads);
  expect(statuses).toEqual(new Map([[200, READS + READS / 10]]));
  return connections();
}

const cases = [
  ['one after another', 'distinct ids', (at: number) => `id-${at}`, MOST_IN_TURN],
  ['one after another', 'one id', () => 'constant', MOST_IN_TURN],
  ['at once', 'distinct ids', (at: number) => `id-${at}`, MOST_CONNECTIONS],
  ['at once', 'one id', () => 'constant', MOST_CONNECTIONS],
] as const;

test.for(cases)('reads %s with %s share connections to the core', async ([how, , idOf, most]) => {
  expect(await connectionsFor(idOf, how === 'at once')).toBeLessThanOrEqual(most);
});

/** The X-Request-Id in the head of a request. */
const idIn = (head: string): string => /\r\nX-Request-Id: ([^\r]*)/i.exec(head)?.[1] ?? '';

test('the core receives a different id for each attempt of each request, even if clients repeat an id', async () => {
  const heard: string[] = [];
  const { get } = await stackBefore((socket, head) => {
    heard.push(idIn(head));
    // Every third attempt fails, so its read is asked again.
    if (heard.length % 3 === 0) socket.destroy();
    else socket.write(okTo(head));
  });
  for (let at = 0; at < 10; at++) {
    const { status, headers } = await get('', { headers: { 'x-request-id': 'same.1' } });
    expect([status, headers['x-request-id']]).toEqual([200, 'same.1']);
  }
  expect(heard.length).toBeGreaterThan(10);
  expect(new Set(heard).size).toBe(heard.length);
  expect(heard.filter((id) => !/^same\.1\.\d+$/.test(id))).toEqual([]);
});

const NEW: string = expect.stringMatching(/^[0-9a-f-]{36}$/);
const stack = await startStack();
const key = await stack.issueKey(UNLIMITED);

test.for<[what: string, given: string | undefined, expected: string]>([
  ['a short one', 'order-47.1_1', 'order-47.1_1'],
  ['the longest', 'a'.repeat(64), 'a'.repeat(64)],
  ['one that ends like an attempt', 'a.7', 'a.7'],
  ['a new one', undefined, NEW],
  ['a new one for one that is too long', 'a'.repeat(65), NEW],
  ...['a b', '"', 'a;b'].map(
    (unfit) => [`a new one for one that is not safe to log, ${unfit}`, unfit, NEW] as [string, string, string],
  ),
])('one id finds a request in the logs of gateway and core: %s', async ([, given, expected]) => {
  const headers: Record<string, string> = given === undefined ? {} : { 'x-request-id': given };
  const pets = `${stack.gateway}/v1/pets`;
  for (const request of [
    () => send(pets, { key, headers }),
    () => send(`${pets}/404404`, { key, headers }),
    () => post(pets, { name: 'Rex', categoryId: 1 }, { key, headers }),
  ]) {
    stack.log.length = 0;
    stack.coreLog.length = 0;
    const answer = await request();
    const id = String(answer.headers['x-request-id']);
    expect(id).toEqual(expected);
    expect(JSON.stringify(answer.headers) + answer.text).not.toMatch(new RegExp(`${id}\\.\\d{9}`));
    const found = (log: typeof stack.log) => log.filter(({ requestId }) => String(requestId).startsWith(id));
    const heard = expect.stringMatching(new RegExp(`^${id}\\.\\d+$`));
    const { status } = answer;
    await expect.poll(() => found(stack.log)).toMatchObject([{ requestId: id, status }]);
    await expect.poll(() => found(stack.coreLog)).toMatchObject([{ requestId: heard, status }]);
  }
});

test('the core keeps the id of a caller that is no gateway', async () => {
  const { headers } = await send(`${stack.core}/v1/pets`, { headers: { 'x-request-id': 'of-a-service' } });
  expect(headers['x-request-id']).toBe('of-a-service');
  await expect.poll(() => stack.coreLog.map(({ requestId }) => requestId)).toContain('of-a-service');
});

test('two processes never give attempts the same id', () => {
  const module = new URL('../../gateway/upstream/headers.ts', import.meta.url).href;
  const print = `import('${module}').then(({ attemptIdOf }) => console.log([1, 2].map(() => attemptIdOf('same')).join()))`;
  const heard = Array.from({ length: 3 }, () => execFileSync(process.execPath, ['-e', print], { encoding: 'utf8' }));
  const ids = heard.flatMap((line) => line.trim().split(','));
  expect(new Set(ids).size).toBe(6);
  for (const id of ids) expect(id).toMatch(/^same\.\d{9}[12]$/);
});
