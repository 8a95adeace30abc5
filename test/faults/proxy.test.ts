import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';

/** A proxy in front of a server that echoes every piece. */
async function setUp() {
  const heard: string[] = [];
  const server = net.createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      heard.push(chunk.toString());
      socket.write(chunk);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUp(() => server.close());
  const proxy = await startFaultProxy(`redis://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return { proxy, heard };
}

interface Client {
  readonly socket: Socket;
  readonly received: () => string;
  readonly fault: () => string | undefined;
}

async function connect(url: string): Promise<Client> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  let received = '';
  let fault: string | undefined;
  socket.on('data', (chunk) => {
    received += chunk.toString();
  });
  socket.on('error', ({ code }: NodeJS.ErrnoException) => {
    fault = code;
  });
  cleanUp(() => socket.destroy());
  await once(socket, 'connect');
  return { socket, received: () => received, fault: () => fault };
}

test('a delay holds replies but not requests, and keeps their order when it ends', async () => {
  const { proxy, heard } = await setUp();
  const { socket, received } = await connect(proxy.url);
  proxy.set({ kind: 'delay', ms: 300 });
  socket.write('a');
  await expect.poll(() => heard, { interval: 5 }).toEqual(['a']);
  await sleep(150);
  expect(received()).toBe('');
  proxy.set({ kind: 'pass' });
  socket.write('b');
  await expect.poll(received).toBe('ab');
});

test('a reset affects open connections and new ones', async () => {
  const { proxy } = await setUp();
  const open = await connect(proxy.url);
  proxy.set({ kind: 'reset' });
  await expect.poll(open.fault).toBe('ECONNRESET');
  // A client may learn of it while it connects or afterwards.
  const late = await connect(proxy.url).then(
    (client) => expect.poll(client.fault),
    ({ code }) => expect(code),
  );
  await late.toBe('ECONNRESET');
  await expect.poll(() => proxy.connections).toBe(0);
});

test('a black hole swallows both directions and delivers everything when it is over', async () => {
  const { proxy, heard } = await setUp();
  const { socket, received, fault } = await connect(proxy.url);
  proxy.set({ kind: 'black-hole' });
  const late = await connect(proxy.url);
  for (const each of [socket, late.socket]) each.write('a');
  await sleep(200);
  expect([heard, received(), late.received()]).toEqual([[], '', '']);
  proxy.set({ kind: 'pass' });
  await expect.poll(() => [received(), late.received(), fault()]).toEqual(['a', 'a', undefined]);
});

test('a half-open connection is dead for good, and new ones pass', async () => {
  const { proxy } = await setUp();
  const dead = await connect(proxy.url);
  proxy.set({ kind: 'half-open' });
  dead.socket.write('a');
  const late = await connect(proxy.url);
  late.socket.write('b');
  await expect.poll(late.received).toBe('b');
  proxy.set({ kind: 'pass' });
  await sleep(100);
  expect([dead.received(), dead.fault()]).toEqual(['', undefined]);
});

test('a trickle delivers a few bytes at a time, and the rest at once when it ends', async () => {
  const { proxy } = await setUp();
  const { socket, received } = await connect(proxy.url);
  proxy.set({ kind: 'trickle', bytes: 2, everyMs: 100 });
  socket.write('0123456789');
  await expect.poll(received, { interval: 5 }).toBe('01');
  await expect.poll(received, { interval: 5 }).toBe('0123');
  proxy.set({ kind: 'pass' });
  await expect.poll(received).toBe('0123456789');
});

test('a reply is cut after the given number of bytes', async () => {
  const { proxy } = await setUp();
  const { socket, received, fault } = await connect(proxy.url);
  proxy.set({ kind: 'cut-reply', afterBytes: 3 });
  socket.write('0123456789');
  await expect.poll(fault).toBe('ECONNRESET');
  expect(received()).toBe('012');
});
