import { execFile } from 'node:child_process';
import { chmodSync, cpSync, existsSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { composeText, freshSecrets } from '../compose.ts';
import { ROOT } from '../process.ts';
import { temporaryFolder } from '../stack.ts';
import { type Docker, environmentOf } from './docker.ts';
import { ENGINE_FOLDER } from './engine.ts';
import { servicesOf, withoutDigest } from './stand-ins.ts';

/**
 * Runs deploy/compose.yaml with Compose 2 on the tests' engine. Uses a copy of the folder without the developer's
 * private files.
 */

const execute = promisify(execFile);
const UP_MS = 240_000;
/** Files that may contain a developer's secrets. */
const PRIVATE = ['.env', 'chat-url'];

export type ComposeProject = Awaited<ReturnType<typeof composeProject>>;

/** @param publishOn the address at which clients reach the service */
export async function composeProject(socket: string, docker: Docker, publishOn: string) {
  const program = await composeProgram(docker);
  const folder = join(await temporaryFolder(), 'deploy');
  cpSync(join(ROOT, 'deploy'), folder, { recursive: true, filter: (path) => !PRIVATE.includes(basename(path)) });
  const [environment, file] = [join(folder, '.env'), join(folder, 'compose.yaml')];
  const secrets: Record<string, string> = { ...freshSecrets(), PUBLISH_ON: publishOn };
  const lines = Object.entries(secrets).map(([name, value]) => `${name}=${value}\n`);
  writeFileSync(environment, lines.join(''), { mode: 0o600 });
  writeFileSync(file, withoutDigest(composeText()));
  const options = ['--env-file', environment, '--file', file];
  return {
    /** Runs `docker compose <args>`. @returns its standard output @throws {Error} if it fails */
    async compose(...args: readonly string[]): Promise<string> {
      const { stdout } = await execute(program, [...options, ...args], { env: environmentOf(socket), timeout: UP_MS });
      return stdout.trim();
    },
    /** The name of a service's container. */
    nameOf: (service: string) => `animal-store-${service}-1`,
    /** The operators' token for the gateways of the project. */
    adminToken: secrets.ADMIN_TOKEN ?? '',
    /** Sets the webhook to which the Alertmanager of the project sends alerts. */
    sendAlertsTo: (url: string) => writeFileSync(join(folder, 'alertmanager/chat-url'), url),
  };
}

/** The program from Debian 13's package, which works without the package's other files. */
async function composeProgram(docker: Docker): Promise<string> {
  const program = join(ENGINE_FOLDER, 'docker-compose');
  if (existsSync(program)) return program;
  const container = await docker(['create', '--network', 'none', await servicesOf(docker), 'true']);
  await docker(['cp', `${container}:/usr/local/lib/docker-compose`, program]);
  await docker(['rm', container]);
  chmodSync(program, 0o755);
  return program;
}
