import { z } from 'zod';
import { SECOND, systemClock } from '../../limiter/clock.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import type { ActivityStore } from '../activity-entry.ts';
import { REVOKED_KEPT_SECONDS } from '../key-walk.ts';
import { JsonFile } from './file.ts';

/** When each key was revoked, by id: Unix time in microseconds. 36 bytes a key. */
const Times = z.record(z.string(), z.int().nonnegative());

/**
 * The keys of a standalone gateway that were revoked in the last 36 days. Their ids are in a file, so that no backup
 * brings them back after a restart. Their use is in memory, and no digest is kept.
 */
export class RevokedKeys {
  readonly #file: JsonFile;
  #times: ReadonlyMap<string, number>;
  readonly #entries = new Map<string, KeyEntry>();

  private constructor(file: JsonFile, times: ReadonlyMap<string, number>) {
    this.#file = file;
    this.#times = times;
  }

  /**
   * @param activity tells of keys that were revoked by a version without this file
   * @throws if the file exists but does not hold revoked keys
   */
  static async open(path: string, activity?: Pick<ActivityStore, 'list'>): Promise<RevokedKeys> {
    const file = new JsonFile(path);
    const { success, data } = Times.safeParse((await file.read()) ?? {});
    if (!success) throw new Error(`${path} does not hold revoked keys; mend it, or restore it.`);
    return new RevokedKeys(file, new Map([...(await timesIn(activity)), ...Object.entries(data)]));
  }

  has(id: string): boolean {
    return (this.#times.get(id) ?? 0) > oldest();
  }

  /** Those that were revoked since the start. */
  entries(): KeyEntry[] {
    this.#forgetOld();
    return [...this.#entries.values()];
  }

  /** Notes on disk that a key is revoked. */
  async note(id: string): Promise<void> {
    let next = this.#times;
    await this.#file.replace(
      () => {
        const times = [...this.#times].filter(([, at]) => at > oldest());
        next = new Map([...times, [id, systemClock()]]);
        return Object.fromEntries(next);
      },
      () => {
        this.#times = next;
      },
    );
  }

  /** Keeps what is left of a key that was noted. */
  keep(entry: KeyEntry): void {
    this.#forgetOld();
    this.#entries.set(entry.id, entry);
  }

  #forgetOld(): void {
    for (const id of this.#entries.keys()) if (!this.has(id)) this.#entries.delete(id);
  }
}

const oldest = (): number => systemClock() - REVOKED_KEPT_SECONDS * SECOND;

async function timesIn(activity: Pick<ActivityStore, 'list'> | undefined): Promise<[id: string, at: number][]> {
  const isWanted = ({ action }: { action: string }) => action === 'key.revoke';
  const told = await activity?.list({ after: undefined, limit: Number.POSITIVE_INFINITY, isWanted });
  return (told?.activity ?? []).map(({ target, id }) => [target, Number.parseInt(id, 10) * 1_000]);
}
