import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { vi } from 'vitest';
import { send } from './http.ts';
import { need } from './install.ts';
import { freePort } from './port.ts';
import { ROOT, type Started, startProcess } from './process.ts';

export const CONFIGURATION = join(ROOT, 'deploy/haproxy.cfg');

/** A haproxy with the shipped configuration. */
export interface Haproxy extends Started {
  /** The URL for clients. */
  readonly url: string;
  /** The address of the health check, which reports whether a gateway is ready. */
  readonly health: string;
}

/**
 * Starts haproxy, and resolves once it accepts connections. It is killed after the test, or after the test file.
 * @param gateways the variables of the configuration other than haproxy's own addresses
 */
export async function startHaproxy(
  gateways: Record<'GATEWAY_1' | 'GATEWAY_2' | 'ADMIN_PORT_1' | 'ADMIN_PORT_2', string>,
): Promise<Haproxy> {
  const [url, health] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
  const started = startProcess(need('haproxy'), ['-db', '-f', CONFIGURATION], {
    ...gateways,
    BIND: url,
    HEALTH_BIND: health,
  });
  await vi.waitFor(() => send(`http://${health}/healthz`), { timeout: 30_000 });
  return { ...started, url: `http://${url}`, health: `http://${health}/healthz` };
}

/** Runs haproxy's check of the configuration. The status is 0 if there is neither an error nor a warning. */
export function checkConfiguration(environment: NodeJS.ProcessEnv): { status: number | null; said: string } {
  const { status, stderr } = spawnSync(need('haproxy'), ['-dW', '-c', '-f', CONFIGURATION], {
    env: environment,
    encoding: 'utf8',
  });
  return { status, said: stderr };
}
