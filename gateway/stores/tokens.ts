import { z } from 'zod';
import { Conflict } from '../../shared/domain-errors.ts';
import { type Activity, auditEntries, readJson } from './audit.ts';
import { type Fields, fieldsOfTable, type Storage } from './storage.ts';
import { ROLES } from './words.ts';

/** More tokens than the operators and programs of one organisation need. */
export const MAX_TOKENS = 1_000;

/** An operator's named token. Only its digest is stored. */
export const OperatorToken = z.object({
  name: z.string(),
  role: z.enum(ROLES),
  createdAt: z.string(),
  /** SHA-256 of the complete token, in hex. */
  digest: z.string().regex(/^[0-9a-f]{64}$/),
});

export type OperatorToken = Readonly<z.infer<typeof OperatorToken>>;

/**
 * Operators' tokens: one record with a field for each id. A token that a manual edit has made unreadable counts as
 * missing.
 */
export class Tokens {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  async find(id: string): Promise<OperatorToken | undefined> {
    return readToken((await this.#read())[id]);
  }

  async list(): Promise<ReadonlyMap<string, OperatorToken>> {
    const all = Object.entries(await this.#read()).map(([id, text]) => [id, readToken(text)] as const);
    return new Map(all.filter((token): token is [string, OperatorToken] => token[1] !== undefined));
  }

  async create(id: string, token: OperatorToken, activity: Activity): Promise<void> {
    if (Object.keys(await this.#read()).length >= MAX_TOKENS)
      throw new Conflict(`There are ${MAX_TOKENS} tokens already. Revoke those that are no longer needed.`);
    await this.#change(id, undefined, JSON.stringify(token), activity);
  }

  /**
   * @param entryFor makes the audit entry from the revoked token
   * @returns false if there is no such token. Even then, the call waits for confirmation as a revocation does, because
   *   an earlier attempt may have revoked the token
   */
  async remove(id: string, entryFor: (token: OperatorToken) => Activity): Promise<boolean> {
    const text = (await this.#read())[id];
    const token = readToken(text);
    const isMade = await this.#change(id, text, undefined, token && entryFor(token));
    return isMade && token !== undefined;
  }

  /** @returns false if the token has changed in the meantime */
  #change(id: string, from: string | undefined, to: string | undefined, activity?: Activity): Promise<boolean> {
    return this.#storage.change({
      parts: [{ record: 'tokens', expect: { [id]: from }, set: { [id]: to } }],
      entries: auditEntries(activity),
      urgency: to === undefined ? 'revocation' : undefined,
    });
  }

  async #read(): Promise<Fields> {
    return fieldsOfTable('tokens', await this.#storage.read('tokens')) ?? {};
  }
}

const readToken = (text: string | undefined): OperatorToken | undefined => readJson(OperatorToken, text);
