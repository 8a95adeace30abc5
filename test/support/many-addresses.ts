import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { CONFIGURATION } from './haproxy.ts';
import { need } from './install.ts';

/**
 * Prints how many connections haproxy keeps open with the shipped configuration: first from two addresses in the same
 * IPv6 /64 together, then from an address in another /64. The arguments are these three addresses of this machine.
 */

const [ONE = '', NEIGHBOUR = '', ANOTHER = ''] = process.argv.slice(2);
const PORT = 8_080;
/** The connections from each of the two addresses. Together, they exceed what haproxy allows one client. */
const FROM_ONE = 600;
const FROM_ANOTHER = 10;

function startHaproxy(): ChildProcess {
  const nobody = { GATEWAY_1: '127.0.0.1:1', ADMIN_PORT_1: '1', GATEWAY_2: '127.0.0.1:2', ADMIN_PORT_2: '2' };
  const binds = { BIND: `[::]:${PORT}`, HEALTH_BIND: '127.0.0.1:8405' };
  return spawn(need('haproxy'), ['-db', '-f', CONFIGURATION], { env: { ...nobody, ...binds }, stdio: 'ignore' });
}

async function connect(localAddress: string): Promise<Socket> {
  const socket = net.connect({ host: ONE, port: PORT, localAddress });
  socket.on('error', () => {});
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => {});
  return socket;
}

async function isUp(): Promise<boolean> {
  const socket = await connect(ONE);
  const { connecting, destroyed } = socket;
  socket.destroy();
  return !connecting && !destroyed;
}

const open = (from: string, count: number) => Promise.all(Array.from({ length: count }, () => connect(from)));

/** Waits until haproxy has closed no connection for a second, then counts those still open. */
async function kept(sockets: readonly Socket[]): Promise<number> {
  const count = () => sockets.filter(({ closed }) => !closed).length;
  for (let [last, since] = [count(), performance.now()]; performance.now() - since < 1_000; await sleep(50))
    if (count() !== last) [last, since] = [count(), performance.now()];
  return count();
}

const haproxy = startHaproxy();
process.on('exit', () => haproxy.kill('SIGKILL'));
while (!(await isUp())) await sleep(50);
const ofOne = [...(await open(ONE, FROM_ONE)), ...(await open(NEIGHBOUR, FROM_ONE))];
for (const socket of ofOne) socket.resume();
const first = await kept(ofOne);
const ofAnother = await open(ANOTHER, FROM_ANOTHER);
for (const socket of ofAnother) socket.resume();
process.stdout.write(JSON.stringify({ 'one /64': first, 'another /64': await kept(ofAnother) }));
process.exit(0);
