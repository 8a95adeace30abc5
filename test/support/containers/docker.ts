import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** Runs docker's command line on one engine. */

const MINUTE_MS = 60_000;
const execute = promisify(execFile);

/**
 * Returns the standard output of `docker <args>`.
 * @throws {Error} with docker's message, if it fails or takes too long
 */
export type Docker = (args: readonly string[], timeoutMs?: number) => Promise<string>;

/** @param socket the path of the engine's socket */
export function dockerOn(socket: string): Docker {
  const env = environmentOf(socket);
  return async (args, timeoutMs = MINUTE_MS) => {
    const { stdout } = await execute('docker', args, { env, timeout: timeoutMs, maxBuffer: 64 * 2 ** 20 });
    return stdout.trim();
  };
}

/** The variables that make docker and docker-compose use an engine. Debian 12 lacks the plugin BuildKit. */
export const environmentOf = (socket: string): NodeJS.ProcessEnv => ({
  ...process.env,
  DOCKER_HOST: `unix://${socket}`,
  DOCKER_BUILDKIT: '0',
});
