import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { childrenOf } from './children.ts';
import { startInContainer } from './container-engine.ts';
import { endsWithUs } from './ends-with-us.ts';
import { need } from './install.ts';
import { freePort } from './port.ts';

declare module 'vitest' {
  interface ProvidedContext {
    postgresUrl: string;
  }
}

/** A real PostgreSQL for a test run, from any available source. */
export interface PostgresForTests {
  readonly url: string;
  /** The server process, if we started it. */
  readonly server?: ChildProcess;
  stop(): Promise<void>;
}

/**
 * Tries POSTGRES_URL, then a container if an engine is running, then PostgreSQL's programs, which are installed if
 * possible (as root on Debian).
 */
export default async function providePostgres(project: TestProject): Promise<() => Promise<void>> {
  const { POSTGRES_URL: url } = process.env;
  const postgres = url ? { url, stop: async () => {} } : ((await inContainer()) ?? (await startPostgres()));
  project.provide('postgresUrl', postgres.url);
  return postgres.stop;
}

/** @returns undefined if containers are not available. POSTGRES_IMAGE selects another image */
async function inContainer(): Promise<PostgresForTests | undefined> {
  const image = process.env.POSTGRES_IMAGE ?? 'postgres:17';
  return await startInContainer(image, async ({ GenericContainer, Wait }) => {
    const container = await new GenericContainer(image)
      .withEnvironment({ POSTGRES_PASSWORD: 'test' })
      .withExposedPorts(5432)
      .withWaitStrategy(Wait.forListeningPorts())
      .start();
    const url = `postgres://postgres:test@${container.getHost()}:${container.getMappedPort(5432)}/postgres`;
    await answers(url);
    return { url, stop: async () => void (await container.stop()) };
  });
}

/**
 * Starts a PostgreSQL process with its own folder, which is deleted when it stops. PostgreSQL refuses to run as root,
 * so root runs it as another user.
 */
export async function startPostgres(): Promise<PostgresForTests> {
  const programs = dirname(need('postgresql', 'set POSTGRES_URL, start a container engine, or install PostgreSQL'));
  const folder = mkdtempSync(join(tmpdir(), 'animal-store-postgres-'));
  const user = unprivileged(folder);
  const port = await freePort();
  const start = { ...user, stdio: 'ignore', cwd: folder } as const;
  execFileSync(join(programs, 'initdb'), ['-D', folder, '-U', 'test', '--auth=trust', '--no-sync'], start);
  const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`];
  const args = ['-D', folder, ...settings.flatMap((setting) => ['-c', setting])];
  const server = spawn(join(programs, 'postgres'), args, start);
  endsWithUs(server);
  const url = `postgres://test@127.0.0.1:${port}/postgres`;
  await answers(url, server);
  const stop = async () => {
    await stopServer(server);
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, server, stop };
}

function unprivileged(folder: string): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  const user = { uid: id('-u'), gid: id('-g') };
  chownSync(folder, user.uid, user.gid);
  return user;
}

async function answers(url: string, server?: ChildProcess): Promise<void> {
  for (let attempt = 0; attempt < 400 && (server?.exitCode ?? null) === null; attempt++) {
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

/** Suspends a server that we started, with all of its backends, which are separate processes. */
export function pausePostgres({ server }: PostgresForTests): { resume(): void } {
  const signal = (name: 'SIGSTOP' | 'SIGCONT') => {
    for (const pid of [server?.pid as number, ...childrenOf(server?.pid as number)]) process.kill(pid, name);
  };
  signal('SIGSTOP');
  return { resume: () => signal('SIGCONT') };
}

async function stopServer(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return;
  server.kill('SIGQUIT');
  server.kill('SIGCONT');
  await once(server, 'exit');
}
