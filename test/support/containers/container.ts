import { cleanUp } from '../clean-up.ts';
import { type LogLine, parsedLines } from '../log.ts';
import type { Docker } from './docker.ts';

/** A container of one of our images. As in compose.yaml, it has no privileges and a read-only file system. */

export interface Container {
  readonly name: string;
  /** The state that `docker inspect` shows. */
  state(): Promise<State>;
  /** The URL at which a port of the container is published on loopback. */
  url(port: number): Promise<string>;
  /** Runs a program in the container. @throws {Error} if the program fails */
  exec(...command: readonly string[]): Promise<string>;
  /** The log so far. */
  log(): Promise<LogLine[]>;
  /** Milliseconds from the start of the container's first process to the first log line with its address. */
  startMs(): Promise<number>;
}

export interface State {
  readonly Status: string;
  readonly ExitCode: number;
  readonly OOMKilled: boolean;
  readonly StartedAt: string;
  readonly FinishedAt: string;
  readonly Health?: { readonly Status: string };
}

const HARDENED = ['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges:true'];
/** The folder to which an image's user may write without a volume. */
const HOME = ['--tmpfs', '/home/node:uid=1000,gid=1000'];

/**
 * Starts a container, which is removed after the test, or after the test file.
 * @param ports the container's ports, published on free loopback ports
 */
export async function runContainer(
  docker: Docker,
  started: Readonly<Record<'image' | 'name' | 'network', string>> & {
    readonly ports: readonly number[];
    readonly environment: Readonly<Record<string, string>>;
  },
): Promise<Container> {
  const { image, name, network, ports, environment } = started;
  const published = ports.flatMap((port) => ['--publish', `127.0.0.1::${port}`]);
  const variables = Object.entries(environment).flatMap(([key, value]) => ['--env', `${key}=${value}`]);
  const place = ['--detach', '--name', name, '--network', network];
  await docker(['run', ...place, ...HARDENED, ...HOME, ...published, ...variables, image]);
  cleanUp(() => docker(['rm', '--force', name]));
  return containerNamed(docker, name);
}

export function containerNamed(docker: Docker, name: string): Container {
  const state = async () => JSON.parse(await docker(['inspect', '--format', '{{json .State}}', name])) as State;
  const log = async () => {
    const text = `${await docker(['logs', name])}\n`;
    return parsedLines(() => text)();
  };
  return {
    name,
    state,
    log,
    url: async (port) => `http://${(await docker(['port', name, `${port}/tcp`])).split('\n')[0]}`,
    exec: (...command) => docker(['exec', name, ...command]),
    async startMs() {
      const { StartedAt } = await state();
      const line = (await log()).find(({ msg }) => msg === 'listening');
      return Date.parse(String(line?.time)) - Date.parse(StartedAt);
    },
  };
}
