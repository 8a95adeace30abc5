import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { clientIdOf, faultyCore, okTo } from '../support/faulty-core.ts';
import { stackBefore } from '../support/stack-before.ts';

/**
 * Tests a core that closes idle connections at any time, while clients send writes, which must not be sent twice. Core
 * and gateway share this process, so the test sees both ends of a connection. A write that was sent before the close
 * arrived fails, because its outcome is unknown. Any other write must succeed.
 */

const TRIES = 500;
const MOST_MS = 4;
/** Blocks the event loop long enough for a decision and a close to often arrive in the same turn. */
const BUSY_MS = 0.3;

const opened = new Set<Socket>();
const note = (message: unknown) => {
  const { socket } = message as { socket: Socket };
  opened.add(socket);
  socket.once('close', () => opened.delete(socket));
};

/** The gateway's end of a connection to the core. */
const otherEnd = ({ localPort, remotePort }: Socket): Socket | undefined =>
  [...opened].find((socket) => socket.localPort === remotePort && socket.remotePort === localPort);

/** A core that closes each connection within a few milliseconds of its response. */
async function closingCore(close: (socket: Socket) => void) {
  const received = new Map<string, number>();
  const closes = { all: 0, crossed: 0 };
  const url = await faultyCore((socket, head) => {
    const id = clientIdOf(/\r\nX-Request-Id: (\S+)/i.exec(head)?.[1] ?? '');
    received.set(id, (received.get(id) ?? 0) + 1);
    if (socket.writableEnded) {
      socket.destroy();
      return;
    }
    socket.write(okTo(head));
    setTimeout(() => {
      closes.all += 1;
      if ((otherEnd(socket)?.bytesWritten ?? 0) > socket.bytesRead) closes.crossed += 1;
      close(socket);
    }, Math.random() * MOST_MS);
  });
  return { url, received, closes };
}

function keepBusy(): void {
  const turn = () => {
    for (const until = performance.now() + BUSY_MS; performance.now() < until; );
    next = setImmediate(turn);
  };
  let next = setImmediate(turn);
  cleanUp(() => clearImmediate(next));
}

const CLOSES: Readonly<Record<string, (socket: Socket) => void>> = {
  ends: (socket) => socket.end(),
  resets: (socket) => socket.resetAndDestroy(),
};

test.for(Object.keys(CLOSES))(
  'if a core %s idle connections, only writes that cross the close fail, and none is sent twice',
  { timeout: 240_000 },
  async (does) => {
    subscribe('net.client.socket', note);
    cleanUp(() => void unsubscribe('net.client.socket', note));
    const { url, received, closes } = await closingCore(CLOSES[does] as (socket: Socket) => void);
    const { post } = await stackBefore(url);
    keepBusy();
    let failed = 0;
    for (let sent = 0; sent < TRIES; sent++) {
      const { status } = await post('', {}, { headers: { 'x-request-id': randomUUID() } });
      if (status !== 200) failed += 1;
      await sleep(Math.random() * MOST_MS);
    }
    expect([...received.values()].filter((times) => times > 1)).toEqual([]);
    expect(failed).toBe(closes.crossed);
    expect(closes.all).toBeGreaterThan(TRIES / 2);
  },
);
