import net from 'node:net';
import { expect, test } from 'vitest';
import { cleanUp } from '../support/clean-up.ts';
import { send } from '../support/http.ts';
import { startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

test('a gateway without free file descriptors logs this once a second and recovers when some become free', async () => {
  const limited = startProcess('prlimit', ['--nofile=80', process.execPath, 'gateway/main.ts'], {
    PORT: '0',
    ADMIN_PORT: '0',
    DATA_DIR: await temporaryFolder(),
  });
  await expect.poll(() => /"gateway":"http:\/\/[^:]+:(\d+)"/.exec(limited.out())?.[1]).toBeDefined();
  const port = Number(/"gateway":"http:\/\/[^:]+:(\d+)"/.exec(limited.out())?.[1]);
  // Clients reconnect to use up the descriptors that the gateway frees when it closes files it needed only at startup.
  const sockets = new Set<net.Socket>();
  let isOver = false;
  const connect = () => {
    const socket = net.connect(port, '127.0.0.1').on('error', () => {});
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket) && !isOver && setTimeout(connect, 100));
  };
  const leave = () => {
    isOver = true;
    for (const socket of sockets) socket.destroy();
  };
  cleanUp(leave);
  for (let opened = 0; opened < 150; opened++) connect();
  const timesLogged = () => limited.out().split('no file descriptor is left').length - 1;
  await expect.poll(timesLogged).toBeGreaterThan(0);
  leave();
  const status = () =>
    send(`http://127.0.0.1:${port}/v1/pets`).then(
      (answer) => answer.status,
      () => undefined,
    );
  await expect.poll(status).toBe(401);
  expect(timesLogged()).toBeLessThan(20);
});
