import { StoreUnavailable } from '../../limiter/limiter.ts';
import type { BackupNotes } from '../stores.ts';
import { JsonFile } from './file.ts';

/** The last complete backup of a standalone gateway, in a file. */
export class FileBackupNotes implements BackupNotes {
  readonly #file: JsonFile;

  constructor(path: string) {
    this.#file = new JsonFile(path);
  }

  async last(): Promise<number | undefined> {
    const content = await this.#file.read().catch((fault: Error) => {
      throw new StoreUnavailable(fault);
    });
    const { completedAt } = (content ?? {}) as { completedAt?: unknown };
    return Number.isSafeInteger(completedAt) ? (completedAt as number) : undefined;
  }

  async note(seconds: number): Promise<void> {
    await this.#file.replace(() => ({ completedAt: seconds }));
  }
}
