import { z } from 'zod';
import { Conflict } from '../../shared/domain-errors.ts';

/** Named tokens of operators. Only SHA-256 digests are stored. */

/** Each can do what the ones before it can. */
export const ROLES = ['viewer', 'operator', 'admin'] as const;

export type Role = (typeof ROLES)[number];

/** More than an organisation has operators and programs. */
export const MAX_TOKENS = 1_000;

export class TooManyTokens extends Conflict {
  constructor() {
    super(`There are ${MAX_TOKENS} tokens already. End those that nobody needs.`);
  }
}

export const OperatorToken = z.object({
  name: z.string(),
  role: z.enum(ROLES),
  /** RFC 3339. */
  createdAt: z.string(),
  /** SHA-256 of the whole token, in hex. */
  digest: z.string().regex(/^[0-9a-f]{64}$/),
});

export type OperatorToken = Readonly<z.infer<typeof OperatorToken>>;
