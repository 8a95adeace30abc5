import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Fault } from './fault-proxy.ts';
import type { RedisFault, Rig } from './redis-fault.ts';

/** Redis loads its data for longer than any test takes, until `heal` lets it finish at once. */
export const LOADING: RedisFault = { name: 'loading after a restart', cause: restartSlowly, heal: endLoading };

/** All faults that make a single Redis unavailable, named to complete 'a Redis that is …'. */
export const OUTAGES: readonly RedisFault[] = [
  { name: 'killed', cause: ({ server }) => server.stop(), heal: ({ server }) => server.restart() },
  LOADING,
  { name: 'suspended', cause: ({ server }) => server.pause(), heal: ({ server }) => server.resume() },
  {
    name: 'paused',
    cause: ({ redis }) => redis.client('PAUSE', 60_000, 'WRITE'),
    heal: ({ redis }) => redis.client('UNPAUSE'),
  },
  { name: 'busy with an endless script', cause: runEndlessScript, heal: ({ redis }) => redis.script('KILL') },
  { name: 'a replica, which accepts no writes', cause: follow('127.0.0.1', 1), heal: follow('NO', 'ONE') },
  directive('out of memory', 'maxmemory', '1'),
  directive('without enough replicas', 'min-replicas-to-write', '1'),
  network('reset at every connection', { kind: 'reset' }),
  network('cut off in the middle of a reply', { kind: 'cut-reply', afterBytes: 20 }),
  network('slower than the deadline', { kind: 'delay', ms: 600 }),
  network('unreachable without notice', { kind: 'black-hole' }),
  network('received one byte at a time', { kind: 'trickle', bytes: 1, everyMs: 10 }),
];

/** Open connections stop working without notice; new ones work. */
export const HALF_OPEN: RedisFault = { name: 'half-open', cause: ({ proxy }) => proxy.set({ kind: 'half-open' }) };

/** Scripts are flushed repeatedly; nothing else is wrong. */
export function flushedScripts(everyMs: number): RedisFault {
  let flushing: NodeJS.Timeout;
  return {
    name: `without its scripts every ${everyMs} ms`,
    cause({ redis }) {
      flushing = setInterval(() => void redis.script('FLUSH'), everyMs);
    },
    heal: () => clearInterval(flushing),
  };
}

function directive(name: string, setting: string, value: string): RedisFault {
  const set = (text: string) => (rig: Rig) => rig.redis.config('SET', setting, text);
  return { name, cause: set(value), heal: set('0') };
}

function follow(host: string, port: string | number) {
  return ({ redis }: Rig) => redis.replicaof(host, port);
}

function network(name: string, fault: Fault): RedisFault {
  return { name, cause: ({ proxy }) => proxy.set(fault), heal: ({ proxy }) => proxy.set({ kind: 'pass' }) };
}

/** Redis is silent at first, then answers BUSY. */
async function runEndlessScript({ redis }: Rig): Promise<void> {
  await redis.config('SET', 'busy-reply-threshold', '500');
  const somebody = redis.duplicate({ commandTimeout: undefined });
  somebody.on('error', () => {});
  await somebody.ping();
  const run = somebody.eval('while true do end', 0).catch(() => {});
  void run.then(() => somebody.disconnect());
  await sleep(50);
}

/** Redis reports that it is loading, with an estimate of many seconds. */
async function restartSlowly({ server, redis }: Rig): Promise<void> {
  const fill = redis.pipeline();
  for (let at = 0; at < 10_000; at++) fill.set(`filler:${at}`, 'x'.repeat(200));
  await fill.exec();
  await redis.bgrewriteaof();
  while ((await redis.info('persistence')).includes('aof_rewrite_in_progress:1')) await sleep(10);
  await server.stop();
  void server.restart({ 'key-load-delay': '1000', 'loading-process-events-interval-bytes': '1024' });
}

async function endLoading({ server }: Rig): Promise<void> {
  const operator = new Redis(server.url, { enableReadyCheck: false });
  await operator.config('SET', 'key-load-delay', '0');
  operator.disconnect();
}
