import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';

/** The system assigns ports from 32,768 upwards to connections, so a lower port is likely to stay free. */
const [FIRST, BEHIND] = [10_000, 32_768];
const ATTEMPTS = 20;

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const port = randomInt(FIRST, BEHIND);
    const server = net.createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(Boolean, () => false);
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
  throw new Error(`${ATTEMPTS} ports in a row were in use.`);
}
