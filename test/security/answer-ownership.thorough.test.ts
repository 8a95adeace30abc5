import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { faultyCore, withIdOf } from '../support/faulty-core.ts';
import { UNLIMITED } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';

/** No client gets the answer to another request, even if a faulty proxy is between the gateway and the core. */

const REQUESTS = 300;

/** The mark in a request's target, which the core repeats in its answer. */
const markOf = (head: string): string => /mark=([\w-]+)/.exec(head)?.[1] ?? '';

/** A core that sends some answers twice, as a faulty proxy may. The second copy follows at once or later. */
function doublingCore(hasId: boolean, isDoubled: (at: number) => boolean, laterMs: number) {
  let answered = 0;
  return faultyCore((socket: Socket, head) => {
    const body = JSON.stringify({ mark: markOf(head) });
    const text = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    const answer = hasId ? withIdOf(head, text) : text;
    socket.write(answer);
    if (!isDoubled(answered++)) return;
    if (laterMs === 0) socket.write(answer);
    else setTimeout(() => socket.write(answer), laterMs);
  });
}

const cases = [true, false].flatMap((hasId) =>
  ['GET', 'POST'].flatMap((method) => [0, 2].map((laterMs) => ({ hasId, method, laterMs }))),
);

test.for(cases)(
  'an answer that is repeated after $laterMs ms reaches no other $method request (answers with ids: $hasId)',
  async ({ hasId, method, laterMs }) => {
    const core = await doublingCore(hasId, (at) => at % 7 === 0, laterMs);
    const { stack, key: one, get, post } = await stackBefore(core);
    const keys = [one, await stack.issueKey(UNLIMITED)] as const;
    const wrong: string[] = [];
    const client = async (number: number) => {
      for (let at = 0; at < REQUESTS / 30; at++) {
        const mark = `${number}-${at}`;
        const key = keys[number % 2] as string;
        // Some clients choose their own request ids, and several choose the same ones.
        const headers: Record<string, string> = number % 3 === 0 ? { 'x-request-id': `same-${at % 4}` } : {};
        const sent = { key, headers };
        const answer = await (method === 'GET' ? get(`?mark=${mark}`, sent) : post(`?mark=${mark}`, {}, sent));
        if (answer.status === 200 && (answer.json as { mark: string }).mark !== mark) wrong.push(mark);
        if (method === 'GET' && answer.status !== 200) wrong.push(`${mark}: ${answer.status}`);
      }
    };
    await Promise.all(Array.from({ length: 30 }, (_, number) => client(number)));
    expect(wrong).toEqual([]);
  },
);

test('an unrequested answer closes its connection and reaches no client', async () => {
  const sockets: Socket[] = [];
  const { get } = await stackBefore((socket, head) => {
    if (!sockets.includes(socket)) sockets.push(socket);
    const body = JSON.stringify({ mark: markOf(head) });
    socket.write(withIdOf(head, `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`));
  });
  const ask = (mark: string) => get(`?mark=${mark}`);
  for (let at = 0; at < 10; at++) expect((await ask(`${at}`)).text).toBe(`{"mark":"${at}"}`);
  const open = sockets.filter(({ destroyed }) => !destroyed);
  for (const socket of open) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong');
  await expect.poll(() => open.filter(({ destroyed }) => !destroyed).length).toBe(0);
  await sleep(20);
  expect((await ask('last')).text).toBe('{"mark":"last"}');
});
