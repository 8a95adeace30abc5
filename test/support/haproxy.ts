import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { vi } from 'vitest';
import { send } from './http.ts';
import { installPackage, pathOf } from './install.ts';
import { freePort } from './port.ts';
import { ROOT, type Started, startProcess } from './process.ts';

export const CONFIGURATION = join(ROOT, 'deploy/haproxy.cfg');

/** A haproxy with the configuration that the project ships. */
export interface Haproxy extends Started {
  /** Where clients connect. */
  readonly url: string;
}

/** What the configuration takes from its environment besides the addresses of haproxy itself. */
export type Gateways = Readonly<Record<'GATEWAY_1' | 'GATEWAY_2' | 'ADMIN_PORT_1' | 'ADMIN_PORT_2', string>>;

/** Ends once it takes connections. Killed after the test, or after its file. */
export async function startHaproxy(gateways: Gateways): Promise<Haproxy> {
  const [url, health] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
  const started = startProcess(findHaproxy(), ['-db', '-f', CONFIGURATION], {
    ...gateways,
    BIND: url,
    HEALTH_BIND: health,
  });
  await vi.waitFor(() => send(`http://${health}/healthz`), { timeout: 30_000 });
  return { ...started, url: `http://${url}` };
}

/** What haproxy says of the configuration, with warnings as faults; status 0 when it has nothing to say. */
export function checkConfiguration(environment: NodeJS.ProcessEnv): { status: number | null; said: string } {
  const { status, stderr } = spawnSync(findHaproxy(), ['-dW', '-c', '-f', CONFIGURATION], {
    env: environment,
    encoding: 'utf8',
  });
  return { status, said: stderr };
}

/** Debian keeps it off most people's PATH. */
function findHaproxy(): string {
  const find = () => pathOf('haproxy') ?? pathOf('/usr/sbin/haproxy');
  return find() ?? installHaproxy(find);
}

function installHaproxy(find: () => string | undefined): string {
  installPackage('haproxy', 'put haproxy on PATH');
  return find() as string;
}
