import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { cleanUp } from './clean-up.ts';
import { startProcess } from './process.ts';

const PROGRAM = `require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, function () {
  process.stdout.write(String(this.address().port));
})`;

/**
 * The URL of an address that neither accepts nor refuses connections, like a machine that is switched off. It belongs
 * to a stopped process whose backlog is full, so the kernel drops every further SYN.
 */
export async function unreachableServer(): Promise<string> {
  const { child, out } = startProcess(process.execPath, ['-e', PROGRAM], {});
  await once(child.stdout as NodeJS.ReadableStream, 'data');
  child.kill('SIGSTOP');
  const port = Number(out());
  for (let isOpen = true; isOpen; ) isOpen = await fill(port);
  return `http://127.0.0.1:${port}`;
}

/** Whether one more connection was accepted. */
async function fill(port: number): Promise<boolean> {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  cleanUp(() => socket.destroy());
  return await Promise.race([once(socket, 'connect').then(() => true), sleep(200, false)]);
}
