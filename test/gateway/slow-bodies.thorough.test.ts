import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { faultyCore, OK, slowCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';

test('bodies that arrive together, after their heads, are refused immediately if the core is too slow', async () => {
  const RATE = 15;
  const stack = await startStack({ CORE_URL: await slowCore(RATE), CORE_TIMEOUT_MS: '5000' });
  const [key = '', greedy = ''] = [await stack.issueKey(UNLIMITED), await stack.issueKey(UNLIMITED)];
  const read = async () => (await send(`${stack.gateway}/v1/pets`, { key })).status;
  // The gateway learns the speed of the core only under overload.
  const begun = Array.from({ length: 30 * RATE }, async (_, at) => {
    await sleep(at * 13);
    await send(`${stack.gateway}/v1/pets`, { key: greedy });
  });
  await Promise.all(begun);
  const statuses: number[] = [];
  const sending = Array.from({ length: 300 }, async () => {
    const { socket, received, closed } = await connectRaw(stack.gateway);
    socket.write(
      `POST /v1/pets HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\nAuthorization: Bearer ${greedy}\r\n\r\n`,
    );
    await sleep(500);
    socket.write('{}');
    await closed;
    statuses.push(Number(received().slice(9, 12)));
  });
  await sleep(1_000);
  expect(await read()).toBe(200);
  await Promise.all(sending);
  expect(await read()).toBe(200);
  expect(statuses.filter((status) => status === 504)).toEqual([]);
  expect(statuses.filter((status) => status === 503).length).toBeGreaterThan(150);
}, 60_000);

test('slow bodies use no capacity, even when it is scarce', async () => {
  let isSlow = true;
  const core = await faultyCore((socket) => void (isSlow || socket.write(OK)));
  const stack = await startStack({ CORE_URL: core, CORE_TIMEOUT_MS: '300' });
  const [key = '', ...slowKeys] = await Promise.all(Array.from({ length: 91 }, () => stack.issueKey(UNLIMITED)));
  // A core that has timed out gets fewer concurrent requests.
  for (let round = 0; round < 3; round++) await send(`${stack.gateway}/v1/pets`, { key });
  isSlow = false;
  for (const slowKey of slowKeys) {
    const { socket } = await connectRaw(stack.gateway);
    socket.write(
      `POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\nAuthorization: Bearer ${slowKey}\r\nExpect: 100-continue\r\n\r\n`,
    );
    // 100 (Continue) shows that the request is admitted and waits for its body.
    await once(socket, 'data');
  }
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
});
