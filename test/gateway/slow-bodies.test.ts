import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { Admission } from '../../gateway/admission.ts';
import { cleanUp } from '../support/clean-up.ts';
import { faultyCore, OK } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const proven = (client: string) => ({ client, isProven: true });

test('who waits for its own client is not counted, and is let in again whatever there is to do', async () => {
  const admission = new Admission(() => 4);
  const body = Promise.withResolvers<string>();
  expect(admission.enter(proven('slow'))).toBe(true);
  const outside = admission.outside(proven('slow'), () => body.promise);
  for (const client of ['a', 'b', 'c', 'd']) expect(admission.enter(proven(client))).toBe(true);
  body.resolve('body');
  expect(await outside).toBe('body');
  for (const client of ['slow', 'a', 'b', 'c', 'd']) admission.leave(proven(client));
  expect([admission.enter(proven('a')), admission.enter(proven('a')), admission.enter(proven('a'))]).toEqual([
    true,
    true,
    false,
  ]);
});

test('a body that never comes is let out all the same', async () => {
  const admission = new Admission(() => 2);
  expect(admission.enter(proven('slow'))).toBe(true);
  await expect(admission.outside(proven('slow'), () => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
  admission.leave(proven('slow'));
  expect(admission.enter(proven('slow'))).toBe(true);
});

test('bodies that are slow to come take nobody’s room, also where there is little of it', async () => {
  let isSlow = true;
  const core = await faultyCore((socket) => void (isSlow || socket.write(OK)));
  const stack = await startStack({ CORE_URL: core, CORE_TIMEOUT_MS: '300' });
  const unlimited = { plan: 'enterprise', minute: 1_000_000, day: 1_000_000 };
  const [key = '', ...slowKeys] = await Promise.all(Array.from({ length: 91 }, () => stack.issueKey(unlimited)));
  // A core that has not answered in time is asked less at once.
  for (let round = 0; round < 3; round++) await send(`${stack.gateway}/v1/pets`, { key });
  isSlow = false;
  for (const slowKey of slowKeys) {
    const socket = net.connect(Number(new URL(stack.gateway).port), '127.0.0.1');
    cleanUp(() => socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'connect');
    socket.write(
      `POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\nAuthorization: Bearer ${slowKey}\r\nExpect: 100-continue\r\n\r\n`,
    );
    // The gateway asks for the body: it is decided on, and waited for.
    await once(socket, 'data');
  }
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
});
