import { z } from 'zod';
import type { PlanStore } from '../limiter.ts';
import type { StoredPlans } from '../plans.ts';
import { readJsonFile, writeJsonFile } from './file.ts';

const Table = z.record(z.string(), z.string());

/** The plan table of a gateway on its own, in a file that people may edit as they would the table in Redis. */
export class FilePlans implements PlanStore {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async read(): Promise<StoredPlans> {
    return Table.parse((await readJsonFile(this.#path)) ?? {});
  }

  async seed(plans: StoredPlans): Promise<void> {
    await writeJsonFile(this.#path, { ...plans, ...(await this.read()) });
  }

  async write(plans: StoredPlans): Promise<void> {
    await writeJsonFile(this.#path, { ...(await this.read()), ...plans });
  }
}
