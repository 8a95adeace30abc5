import type { Activity } from '../activity-entry.ts';
import { MAX_TOKENS, OperatorToken, type TokenStore, TooManyTokens } from '../operator-token.ts';
import { orUnavailable } from './calls.ts';
import { changeHash } from './change-hash.ts';
import type { Trail } from './trail.ts';

const TOKENS = 'gateway:tokens';

/** Operators' tokens in Redis: one hash, a field per id. */
export class RedisTokens implements TokenStore {
  readonly #trail: Trail;

  constructor(trail: Trail) {
    this.#trail = trail;
  }

  async find(id: string): Promise<OperatorToken | undefined> {
    return toToken(await orUnavailable(this.#trail.redis.hget(TOKENS, id)));
  }

  async list(): Promise<ReadonlyMap<string, OperatorToken>> {
    const found = Object.entries(await this.#read()).map(([id, text]) => [id, toToken(text)] as const);
    return new Map(found.filter((token): token is [string, OperatorToken] => token[1] !== undefined));
  }

  async create(id: string, token: OperatorToken, activity: Activity): Promise<void> {
    if (Object.keys(await this.#read()).length >= MAX_TOKENS) throw new TooManyTokens();
    await this.#change(id, undefined, JSON.stringify(token), activity);
  }

  async remove(id: string, entryFor: (token: OperatorToken) => Activity): Promise<boolean> {
    const text = await orUnavailable(this.#trail.redis.hget(TOKENS, id));
    const token = toToken(text);
    if (text === null || token === undefined) return false;
    return await this.#change(id, text, undefined, entryFor(token));
  }

  /** @returns false if the token is not as expected any more */
  async #change(id: string, from: string | undefined, to: string | undefined, activity: Activity): Promise<boolean> {
    const changed = await changeHash(this.#trail, TOKENS, {
      expected: { [id]: from },
      changes: { [id]: to },
      notes: this.#trail.notesOf([activity]),
      read: () => this.#read(),
    });
    return changed !== undefined;
  }

  #read(): Promise<Record<string, string>> {
    return orUnavailable(this.#trail.redis.hgetall(TOKENS));
  }
}

function toToken(text: string | null): OperatorToken | undefined {
  try {
    return OperatorToken.parse(JSON.parse(text ?? ''));
  } catch {
    return undefined;
  }
}
