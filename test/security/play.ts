import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Stream } from './corpus/corpus.ts';

/** How long to pause between writes, and how long to wait for further answers. */
const MOMENT_MS = 10;
const QUIET_MS = 40;
const AT_ONCE = 64;

/** Sends byte streams to a server, many at once. @returns the bytes that were received for each */
export async function play(url: string, streams: readonly Stream[]): Promise<Map<string, string>> {
  const answers = new Map<string, string>();
  const left = streams.values();
  const player = async () => {
    for (const stream of left) answers.set(stream.id, await playOne(url, stream));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, player));
  return answers;
}

/** Reads until no bytes have arrived for a while. With `cut`, closes the connection after the last write instead. */
async function playOne(url: string, { writes, cut }: Stream): Promise<string> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  let answer = '';
  socket.on('error', () => {});
  socket.on('data', (bytes) => {
    answer += bytes.toString('latin1');
  });
  await once(socket, 'connect');
  for (const bytes of writes) {
    if (socket.writable && bytes !== '') socket.write(Buffer.from(bytes, 'latin1'));
    await sleep(cut ? 0 : MOMENT_MS);
  }
  if (!cut) await untilQuiet(socket);
  socket.destroy();
  return answer;
}

function untilQuiet(socket: net.Socket): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, QUIET_MS);
  socket.on('data', () => timer.refresh());
  socket.once('close', () => resolve());
  return promise;
}
