import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { containerEngine } from './container-engine.ts';
import { installPackage, isOnPath } from './install.ts';
import { freePort } from './port.ts';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string;
  }
}

/** A real PostgreSQL for a run of tests, from wherever one can be had. */
export interface PostgresForTests {
  readonly url: string;
  /** The server process, where it is ours. */
  readonly server?: ChildProcess;
  stop(): Promise<void>;
}

export default async function providePostgres(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await findPostgres();
  project.provide('postgresUrl', postgres.url);
  return postgres.stop;
}

/** POSTGRES_URL; else a container, where an engine runs; else PostgreSQL's programs; else, as root on Debian, they are installed. */
async function findPostgres(): Promise<PostgresForTests> {
  const { POSTGRES_URL } = process.env;
  if (POSTGRES_URL !== undefined) return { url: POSTGRES_URL, stop: async () => {} };
  return (await inContainer()) ?? (await startPostgres());
}

async function inContainer(): Promise<PostgresForTests | undefined> {
  const engine = await containerEngine();
  if (engine === undefined) return undefined;
  const { GenericContainer, Wait } = engine;
  const container = await new GenericContainer('postgres:17')
    .withEnvironment({ POSTGRES_PASSWORD: 'test' })
    .withExposedPorts(5432)
    .withWaitStrategy(Wait.forLogMessage(/ready to accept connections/, 2))
    .start();
  const url = `postgres://postgres:test@${container.getHost()}:${container.getMappedPort(5432)}/postgres`;
  return { url, stop: async () => void (await container.stop()) };
}

/** A PostgreSQL process with a folder of its own, gone when it stops. It refuses to run as root, so root lends it a user. */
export async function startPostgres(): Promise<PostgresForTests> {
  const programs = findPrograms() ?? installPrograms();
  const folder = mkdtempSync(join(tmpdir(), 'animal-store-postgres-'));
  const user = unprivileged(folder);
  const port = await freePort();
  execFileSync(join(programs, 'initdb'), ['-D', folder, '-U', 'test', '--auth=trust', '--no-sync'], {
    ...user,
    stdio: 'ignore',
    cwd: folder,
  });
  const { server, url } = await launch(programs, folder, port, user);
  const stop = async () => {
    await stopServer(server);
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, server, stop };
}

interface User {
  readonly uid?: number;
  readonly gid?: number;
}

async function launch(
  programs: string,
  folder: string,
  port: number,
  user: User,
): Promise<{ server: ChildProcess; url: string }> {
  const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`];
  const args = ['-D', folder, ...settings.flatMap((setting) => ['-c', setting])];
  const server = spawn(join(programs, 'postgres'), args, { ...user, stdio: 'ignore', cwd: folder });
  const url = `postgres://test@127.0.0.1:${port}/postgres`;
  await answers(url, server);
  return { server, url };
}

function unprivileged(folder: string): User {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  const user = { uid: id('-u'), gid: id('-g') };
  chownSync(folder, user.uid, user.gid);
  return user;
}

/** Debian keeps them off PATH, in a folder a version. */
function findPrograms(): string | undefined {
  const versions = existsSync('/usr/lib/postgresql') ? readdirSync('/usr/lib/postgresql').sort() : [];
  const folders = versions.reverse().map((version) => `/usr/lib/postgresql/${version}/bin`);
  const found = folders.find((folder) => existsSync(join(folder, 'initdb')) && existsSync(join(folder, 'postgres')));
  if (found !== undefined) return found;
  return isOnPath('initdb') && isOnPath('postgres') ? '' : undefined;
}

function installPrograms(): string {
  installPackage('postgresql', 'set POSTGRES_URL, start a container engine, or install PostgreSQL');
  return findPrograms() ?? '';
}

async function answers(url: string, server: ChildProcess): Promise<void> {
  for (let attempt = 0; attempt < 400 && server.exitCode === null; attempt++) {
    const client = new pg.Client(url);
    const isUp = await client.connect().then(
      () => true,
      () => false,
    );
    await client.end().catch(() => {});
    if (isUp) return;
    await sleep(25);
  }
  throw new Error(`PostgreSQL did not come up at ${url}.`);
}

async function stopServer(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return;
  server.kill('SIGQUIT');
  server.kill('SIGCONT');
  await once(server, 'exit');
}
