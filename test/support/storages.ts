import { join } from 'node:path';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { SqliteStorage } from '../../gateway/stores/sqlite/storage.ts';
import type { Storage } from '../../gateway/stores/storage.ts';
import { cleanUp } from './clean-up.ts';
import { connectedRedis } from './redis-database.ts';
import { temporaryFolder } from './stack.ts';

/** Both storages by name, empty, for tests that cover both. @param url the URL of an empty Redis database */
export const bothStorages = (
  url: string,
): readonly [name: string, open: (options?: { auditLength?: number }) => Promise<Storage>][] => [
  ['SQLite', sqliteStorage],
  [
    'Redis',
    async (options) => {
      const redis = await connectedRedis(url);
      await redis.flushdb();
      return new RedisStorage(redis, options);
    },
  ],
];

export async function sqliteStorage(options?: { auditLength?: number }): Promise<SqliteStorage> {
  const storage = new SqliteStorage(join(await temporaryFolder(), 'data'), options);
  cleanUp(() => storage.close());
  return storage;
}

/** An error that a test throws on purpose. */
export class MadeFault extends Error {}

/**
 * A storage that fails once, at its nth call. The call fails before it has an effect, or after it, so that only the
 * reply is lost.
 */
export function failingAt(storage: Storage, nth: number, when: 'before' | 'after'): Storage & { hasFailed(): boolean } {
  let calls = 0;
  const failing = new Proxy(storage, {
    get(target, name) {
      if (name === 'hasFailed') return () => calls >= nth;
      const method = Reflect.get(target, name) as unknown;
      if (typeof method !== 'function') return method;
      return async (...given: unknown[]) => {
        calls += 1;
        const fails = calls === nth;
        if (fails && when === 'before') throw new MadeFault(String(name));
        const answer: unknown = await method.apply(target, given);
        if (fails) throw new MadeFault(String(name));
        return answer;
      };
    },
  });
  return failing as Storage & { hasFailed(): boolean };
}
