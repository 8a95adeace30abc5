import { once } from 'node:events';
import { expect, test } from 'vitest';
import { type Caller, LoadShedder, type Slot } from '../../gateway/pipeline/load-shedder.ts';
import { faultyCore, OK } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { connectRaw } from '../support/raw-client.ts';
import { startStack, UNLIMITED } from '../support/stack.ts';

function take(shedder: LoadShedder, caller: Caller = { inFlight: 0 }): Slot {
  const slot = shedder.slot();
  slot.take(caller);
  return slot;
}

test("a request that waits for its client's body holds no slot, and gets one afterwards under any load", async () => {
  const shedder = new LoadShedder(() => 4);
  const body = Promise.withResolvers<string>();
  const slow = take(shedder);
  const waited = slow.during(() => body.promise);
  const others = Array.from({ length: 4 }, () => take(shedder));
  body.resolve('body');
  expect(await waited).toBe('body');
  for (const slot of [slow, ...others]) slot.release();
  const caller = { inFlight: 0 };
  take(shedder, caller);
  take(shedder, caller);
  expect(shedder.slot().take(caller)).toBe(false);
});

test('a slot is released when a body never arrives', async () => {
  const shedder = new LoadShedder(() => 2);
  const slow = take(shedder);
  await expect(slow.during(() => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
  slow.release();
  take(shedder).release();
});

test('slow bodies use no capacity, even when it is scarce', async () => {
  let isSlow = true;
  const core = await faultyCore((socket) => void (isSlow || socket.write(OK)));
  const stack = await startStack({ CORE_URL: core, CORE_TIMEOUT_MS: '300' });
  const [key = '', ...slowKeys] = await Promise.all(Array.from({ length: 91 }, () => stack.issueKey(UNLIMITED)));
  // A core that has timed out gets fewer requests at once.
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
