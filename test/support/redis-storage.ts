import { RedisStorage, type RedisStorageOptions } from '../../gateway/stores/redis/storage.ts';
import type { Change, Fields, LogEntry } from '../../gateway/stores/storage.ts';
import { connectedRedis } from './redis-database.ts';

/** Opens a storage with its own connection, like the one that a gateway has for its operators. */
export async function storageAt(url: string, options: RedisStorageOptions = {}, timeoutMs = 5_000) {
  return new RedisStorage(await connectedRedis(url, timeoutMs), options);
}

/** The id of a key by its number. Ids sort in the order of the numbers. */
export const idOfKey = (number: number): string => `Key${String(number).padStart(9, '0')}`;

export const auditEntry = (target: string, action = 'key.change'): LogEntry => ({
  log: 'audit',
  fields: { actor: 'ann', action, target },
});

/** The change that issues a key. */
export const issuing = (id: string, fields: Fields = { plan: 'free', created_at: '1000.5' }): Change => ({
  parts: [
    { record: `key:${id}`, exists: false, set: fields },
    { record: `revoked:${id}`, exists: false },
  ],
  entries: [auditEntry(id, 'key.create')],
});

/** The change that revokes a key. */
export const revoking = (id: string): Change => ({
  parts: [
    {
      record: `key:${id}`,
      exists: true,
      moveTo: { record: `revoked:${id}`, fields: ['plan', 'admitted'], seconds: 60 },
    },
  ],
  entries: [auditEntry(id, 'key.revoke')],
  urgency: 'revocation' as const,
});
