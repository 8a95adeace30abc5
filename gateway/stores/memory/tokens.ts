import { z } from 'zod';
import { StoreUnavailable } from '../../limiter/limiter.ts';
import type { Activity, ActivityStore } from '../activity-entry.ts';
import { MAX_TOKENS, OperatorToken, type TokenStore, TooManyTokens } from '../operator-token.ts';
import { JsonFile } from './file.ts';

const Tokens = z.record(z.string(), OperatorToken);

/** Operators' tokens of a standalone gateway, in a file that only its owner can read. */
export class FileTokens implements TokenStore {
  readonly #file: JsonFile;
  readonly #activity: ActivityStore;

  constructor(path: string, activity: ActivityStore) {
    this.#file = new JsonFile(path);
    this.#activity = activity;
  }

  async find(id: string): Promise<OperatorToken | undefined> {
    return (await this.list()).get(id);
  }

  async list(): Promise<ReadonlyMap<string, OperatorToken>> {
    const content = await this.#file.read().catch((fault: Error) => {
      throw new StoreUnavailable(fault);
    });
    const { success, data } = Tokens.safeParse(content ?? {});
    if (!success) throw new StoreUnavailable('The file of tokens does not hold tokens.');
    return new Map(Object.entries(data));
  }

  async create(id: string, token: OperatorToken, activity: Activity): Promise<void> {
    await this.#file.replace(async () => {
      const tokens = await this.list();
      if (tokens.size >= MAX_TOKENS) throw new TooManyTokens();
      return { ...Object.fromEntries(tokens), [id]: token };
    });
    await this.#activity.record(activity);
  }

  async remove(id: string, entryFor: (token: OperatorToken) => Activity): Promise<boolean> {
    let removed: OperatorToken | undefined;
    await this.#file.replace(async () => {
      const tokens = new Map(await this.list());
      removed = tokens.get(id);
      tokens.delete(id);
      return Object.fromEntries(tokens);
    });
    if (removed === undefined) return false;
    await this.#activity.record(entryFor(removed));
    return true;
  }
}
