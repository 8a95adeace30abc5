import type { BackupNotes } from '../stores.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';

const [BACKUP, COMPLETED_AT] = ['gateway:backup', 'completed_at'];

/** The last complete backup, in Redis: every gateway tells the same. */
export class RedisBackupNotes implements BackupNotes {
  readonly #redis: RedisConnection;

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  async last(): Promise<number | undefined> {
    const text = (await orUnavailable(this.#redis.hget(BACKUP, COMPLETED_AT))) ?? '';
    return /^\d{1,10}$/.test(text) ? Number(text) : undefined;
  }

  async note(seconds: number): Promise<void> {
    await orUnavailable(this.#redis.hset(BACKUP, COMPLETED_AT, seconds));
  }
}
