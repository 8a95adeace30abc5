import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { TestProject } from 'vitest/node';
import { startInContainer } from './container-engine.ts';
import { endsWithUs } from './ends-with-us.ts';
import { need } from './install.ts';
import { freePort } from './port.ts';

declare module 'vitest' {
  interface ProvidedContext {
    redisUrl: string;
  }
}

/** A real Redis for a test run, from any available source. */
interface RedisForTests {
  readonly url: string;
  stop(): Promise<void>;
}

/**
 * Tries REDIS_URL, then a container if an engine is running, then a server on PATH, which is installed if possible (as
 * root on Debian).
 */
export default async function provideRedis(project: TestProject): Promise<() => Promise<void>> {
  const { REDIS_URL: url } = process.env;
  const redis = url ? { url, stop: async () => {} } : ((await inContainer()) ?? (await startRedisServer()));
  project.provide('redisUrl', redis.url);
  return redis.stop;
}

/** @returns undefined if containers are not available. REDIS_IMAGE selects another image */
async function inContainer(): Promise<RedisForTests | undefined> {
  const image = process.env.REDIS_IMAGE ?? 'redis:7';
  return await startInContainer(image, async ({ GenericContainer, Wait }) => {
    const container = await new GenericContainer(image)
      .withExposedPorts(6379)
      .withWaitStrategy(Wait.forListeningPorts())
      .start();
    const url = `redis://${container.getHost()}:${container.getMappedPort(6379)}`;
    return { url, stop: async () => void (await container.stop()) };
  });
}

/** Directives of redis.conf, by name. */
export type Directives = Readonly<Record<string, string>>;

/** A redis-server process for one test. */
export interface RedisServer extends RedisForTests {
  /** Suspends the process with all its connections until `resume`. */
  pause(): void;
  resume(): void;
  /** Restarts the process on the same port, with the data on disk. */
  restart(directives?: Directives): Promise<void>;
}

/** Starts a redis-server process, without persistence unless the directives enable it. */
export async function startRedisServer(directives: Directives = {}): Promise<RedisServer> {
  const binary = need('redis-server', 'set REDIS_URL, start a container engine, or put redis-server on PATH');
  const port = String(await freePort());
  const url = `redis://127.0.0.1:${port}`;
  const start = (more: Directives) => {
    // If there is an append-only file, each write reaches it before Redis replies. With everysec, Redis would reply
    // first while the disk is busy, and a kill would lose acknowledged writes.
    const kept = { save: '', appendonly: 'no', appendfsync: 'no' };
    const all = { port, bind: '127.0.0.1', ...kept, ...directives, ...more };
    const args = Object.entries(all).flatMap(([name, value]) => [`--${name}`, value]);
    const server = spawn(binary, args, { stdio: 'ignore' });
    endsWithUs(server);
    return server;
  };
  let server = start({});
  await answers(url, server);
  return {
    url,
    stop: () => stopProcess(server),
    pause: () => void server.kill('SIGSTOP'),
    resume: () => void server.kill('SIGCONT'),
    async restart(more = {}) {
      await stopProcess(server);
      server = start(more);
      await answers(url, server);
    },
  };
}

/** Resolves once a started server accepts commands. */
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
