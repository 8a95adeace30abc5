import { z } from 'zod';
import type { PlanStore } from '../limiter.ts';
import type { StoredPlans } from '../plans.ts';
import { JsonFile } from './file.ts';

/** A person who edits JSON writes 120 as often as "120". */
const Table = z.record(z.string(), z.union([z.string(), z.number().transform(String)]));

/** The plan table of a gateway on its own, in a file that people may edit as they would the table in Redis. */
export class FilePlans implements PlanStore {
  readonly #file: JsonFile;

  constructor(path: string) {
    this.#file = new JsonFile(path);
  }

  async read(): Promise<StoredPlans> {
    return Table.parse((await this.#file.read()) ?? {});
  }

  seed(plans: StoredPlans): Promise<void> {
    return this.#file.replace(async () => ({ ...plans, ...(await this.read()) }));
  }

  write(plans: StoredPlans): Promise<void> {
    return this.#file.replace(async () => ({ ...(await this.read()), ...plans }));
  }
}
