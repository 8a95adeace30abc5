import { z } from 'zod';
import type { PlanStore } from '../limiter.ts';
import { HISTORY_LENGTH, type PlanChange, RecordedChange, versionOf } from '../plan-history.ts';
import type { StoredPlans } from '../plans.ts';
import { JsonFile } from './file.ts';

/** A person who edits JSON writes 120 as often as "120". */
const Table = z.record(z.string(), z.union([z.string(), z.number().transform(String)]));

const History = z.array(RecordedChange);

/** The plan table of a gateway on its own, in a file that people may edit as they would the table in Redis. */
export class FilePlans implements PlanStore {
  readonly #file: JsonFile;
  readonly #history: JsonFile;

  constructor(path: string, historyPath: string) {
    this.#file = new JsonFile(path);
    this.#history = new JsonFile(historyPath);
  }

  async read(): Promise<StoredPlans> {
    return Table.parse((await this.#file.read()) ?? {});
  }

  seed(plans: StoredPlans): Promise<void> {
    return this.#file.replace(async () => ({ ...plans, ...(await this.read()) }));
  }

  async change(changes: StoredPlans, seen?: StoredPlans): Promise<StoredPlans | undefined> {
    let before: StoredPlans | undefined;
    await this.#file.replace(async () => {
      const table = await this.read();
      if (seen !== undefined && versionOf(seen) !== versionOf(table)) return table;
      before = table;
      return { ...table, ...changes };
    });
    return before;
  }

  record(change: PlanChange): Promise<void> {
    return this.#history.replace(async () => append(await this.#oldestFirst(), change));
  }

  recordOnce(change: PlanChange): Promise<void> {
    return this.#history.replace(async () => {
      const records = await this.#oldestFirst();
      return records.at(-1)?.version === change.version ? records : append(records, change);
    });
  }

  async history(limit: number): Promise<RecordedChange[]> {
    return (await this.#oldestFirst()).reverse().slice(0, limit);
  }

  async #oldestFirst(): Promise<RecordedChange[]> {
    return History.parse((await this.#history.read()) ?? []);
  }
}

/** Numbered as Redis numbers a stream: by the clock, and always upwards. */
function append(records: readonly RecordedChange[], change: PlanChange): RecordedChange[] {
  const [time = 0, count = 0] = records.at(-1)?.id.split('-').map(Number) ?? [];
  const now = Date.now();
  const id = now > time ? `${now}-0` : `${time}-${count + 1}`;
  return [...records, { ...change, id }].slice(-HISTORY_LENGTH);
}
