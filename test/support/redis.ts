import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { TestProject } from 'vitest/node';
import { containerEngine } from './container-engine.ts';
import { installPackage, isOnPath } from './install.ts';
import { freePort } from './port.ts';

declare module 'vitest' {
  interface ProvidedContext {
    redisUrl: string;
  }
}

/** A real Redis for a run of tests, from wherever one can be had. */
interface RedisForTests {
  readonly url: string;
  stop(): Promise<void>;
}

export default async function provideRedis(project: TestProject): Promise<() => Promise<void>> {
  const redis = await findRedis();
  project.provide('redisUrl', redis.url);
  return redis.stop;
}

/** REDIS_URL; else a container, where an engine runs; else a server on PATH; else, as root on Debian, one is installed. */
async function findRedis(): Promise<RedisForTests> {
  const { REDIS_URL } = process.env;
  if (REDIS_URL !== undefined) return { url: REDIS_URL, stop: async () => {} };
  return (await inContainer()) ?? (await startRedisServer());
}

async function inContainer(): Promise<RedisForTests | undefined> {
  const engine = await containerEngine();
  if (engine === undefined) return undefined;
  const { GenericContainer, Wait } = engine;
  const container = await new GenericContainer('redis:7')
    .withExposedPorts(6379)
    .withWaitStrategy(Wait.forListeningPorts())
    .start();
  const url = `redis://${container.getHost()}:${container.getMappedPort(6379)}`;
  return { url, stop: async () => void (await container.stop()) };
}

/** Directives of redis.conf, by name. */
export type Directives = Readonly<Record<string, string>>;

/** A redis-server process of a test's own, to be treated badly. */
export interface RedisServer extends RedisForTests {
  /** Stops it in its tracks, connections and all, until `resume`. */
  pause(): void;
  resume(): void;
  /** Starts it again on the same port after it was stopped, with what it kept on disk. */
  restart(directives?: Directives): Promise<void>;
}

/** A redis-server process that keeps nothing on disk, unless it is told to. */
export async function startRedisServer(directives: Directives = {}): Promise<RedisServer> {
  const binary = findServer() ?? installServer();
  const port = String(await freePort());
  const url = `redis://127.0.0.1:${port}`;
  const start = (more: Directives) => {
    // Where an append-only file is kept, every write is in it before it is answered. With everysec, Redis answers first
    // while the disk is busy, and a kill loses what it answered.
    const kept = { save: '', appendonly: 'no', appendfsync: 'no' };
    const all = { port, bind: '127.0.0.1', ...kept, ...directives, ...more };
    const args = Object.entries(all).flatMap(([name, value]) => [`--${name}`, value]);
    return spawn(binary, args, { stdio: 'ignore' });
  };
  let server = start({});
  await answers(url, server);
  return {
    url,
    stop: () => stopProcess(server),
    pause: () => void server.kill('SIGSTOP'),
    resume: () => void server.kill('SIGCONT'),
    async restart(more = {}) {
      server = start(more);
      await answers(url, server);
    },
  };
}

const findServer = (): string | undefined => ['redis-server', 'valkey-server'].find(isOnPath);

function installServer(): string {
  installPackage('redis-server', 'set REDIS_URL, start a container engine, or put redis-server on PATH');
  return 'redis-server';
}

/** Ends when a server that was started takes commands. */
export async function answers(url: string, server: ChildProcess): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    if (server.exitCode !== null) break;
    const probe = new Redis(url, { lazyConnect: true, maxLoadingRetryTime: 25, retryStrategy: () => null });
    probe.on('error', () => {});
    const isUp = await probe.connect().then(
      () => probe.ping().then(Boolean),
      () => false,
    );
    probe.disconnect();
    if (isUp) return;
    await sleep(25);
  }
  throw new Error(`redis-server did not come up at ${url}.`);
}

async function stopProcess(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return;
  server.kill('SIGKILL');
  await once(server, 'exit');
}
