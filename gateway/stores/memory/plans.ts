import { z } from 'zod';
import type { StoredPlans } from '../../limiter/plans.ts';
import type { AboutChange, Activity, ActivityStore } from '../activity-entry.ts';
import {
  changeFrom,
  HISTORY_LENGTH,
  nextRecordId,
  type PlanChange,
  RecordedChange,
  versionOf,
} from '../plan-history.ts';
import type { PlanStore, PlansChanged } from '../stores.ts';
import { JsonFile } from './file.ts';

/** People who edit JSON may write 120 or "120". */
const Table = z.record(z.string(), z.union([z.string(), z.number().transform(String)]));

const History = z.array(RecordedChange);

/** The plan table of a standalone gateway, in a file that people can edit like the table in Redis. */
export class FilePlans implements PlanStore {
  readonly #file: JsonFile;
  readonly #history: JsonFile;
  readonly #activity: Pick<ActivityStore, 'record'>;

  constructor(path: string, historyPath: string, activity: Pick<ActivityStore, 'record'>) {
    this.#file = new JsonFile(path);
    this.#history = new JsonFile(historyPath);
    this.#activity = activity;
  }

  async read(): Promise<StoredPlans> {
    return Table.parse((await this.#file.read()) ?? {});
  }

  seed(plans: StoredPlans): Promise<void> {
    return this.#file.replace(async () => ({ ...plans, ...(await this.read()) }));
  }

  async change(changes: StoredPlans, about: AboutChange, seen?: StoredPlans): Promise<PlansChanged | undefined> {
    let before: StoredPlans | undefined;
    await this.#file.replace(async () => {
      const table = await this.read();
      if (seen !== undefined && versionOf(seen) !== versionOf(table)) return table;
      before = table;
      return { ...table, ...changes };
    });
    if (before === undefined) return undefined;
    const change = changeFrom(before, { ...before, ...changes }, about);
    if (change === undefined) return { before, change, unrecorded: undefined };
    const unrecorded = await this.#history
      .replace(async () => append(await this.#oldestFirst(), change))
      .then(
        () => undefined,
        (fault: Error) => fault.message,
      );
    for (const entry of about.entriesFor(change.changes)) await this.#activity.record(entry);
    return { before, change, unrecorded };
  }

  async recordOnce(change: PlanChange, entries: readonly Activity[]): Promise<boolean> {
    let isOurs = false;
    await this.#history.replace(async () => {
      const records = await this.#oldestFirst();
      isOurs = records.at(-1)?.version !== change.version;
      return isOurs ? append(records, change) : records;
    });
    if (isOurs) for (const entry of entries) await this.#activity.record(entry);
    return isOurs;
  }

  async history(limit: number): Promise<RecordedChange[]> {
    return (await this.#oldestFirst()).reverse().slice(0, limit);
  }

  async #oldestFirst(): Promise<RecordedChange[]> {
    return History.parse((await this.#history.read()) ?? []);
  }
}

const append = (records: readonly RecordedChange[], change: PlanChange): RecordedChange[] =>
  [...records, { ...change, id: nextRecordId(records.at(-1)?.id) }].slice(-HISTORY_LENGTH);
