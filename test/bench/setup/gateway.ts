import { once } from 'node:events';
import { existsSync } from 'node:fs';
import net, { type Socket } from 'node:net';
import { join } from 'node:path';
import { folder, type Service, startNode } from '../machine/processes.ts';
import type { Stage } from './stage.ts';

/** Starts the gateway of a checkout as shipped, on its own Node and ports, in front of the stage's core. */
export function startGateway(
  name: string,
  { coreUrl }: Pick<Stage, 'coreUrl'>,
  env: NodeJS.ProcessEnv,
  checkout = '.',
): Promise<Service> {
  const settings = { PORT: '0', ADMIN_PORT: '0', CORE_URL: coreUrl, DATA_DIR: join(folder, name), ...env };
  const node = join(checkout, 'node_modules/.bin/node');
  return startNode(name, join(checkout, 'gateway/main.ts'), settings, existsSync(node) ? node : undefined);
}

/** Opens a connection to the server at a URL. */
export async function connectTo(url: string): Promise<Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}
