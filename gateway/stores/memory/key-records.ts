import { z } from 'zod';
import { SCOPES } from '../../limiter/credential.ts';
import type { KeyRecord } from '../../limiter/key-record.ts';
import { MAX_LIMIT, PLAN_NAMES } from '../../limiter/plans.ts';

/** The key file of a gateway without Redis. */

const limit = z.int().min(1).max(MAX_LIMIT);
const time = z.int().nonnegative();

const secret = z.strictObject({
  id: z.string(),
  digest: z.string(),
  name: z.string(),
  scope: z.array(z.enum(SCOPES)),
  networks: z.array(z.string()),
  createdAt: time,
  expiresAt: time.optional(),
});

const Records = z.record(
  z.string(),
  z.strictObject({
    plan: z.enum(PLAN_NAMES),
    name: z.string(),
    secrets: z.array(secret).min(1),
    createdAt: time,
    expiresAt: time.optional(),
    disabled: z.boolean().optional(),
    minute: limit.optional(),
    day: limit.optional(),
  }),
);

/** @throws {Error} if `content` is not a key file */
export function readRecords(path: string, content: unknown): Map<string, KeyRecord> {
  const result = Records.safeParse(content);
  if (!result.success) throw new Error(`${path} does not hold API keys:\n${z.prettifyError(result.error)}`);
  return new Map(Object.entries(result.data));
}
