import { z } from 'zod';
import { must } from './must.ts';

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

const isRounded = (value: unknown): boolean =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value as number) < 2 ** 63;

/** The message for a value that is not an int64, or for a number that may have lost digits. */
const RANGE = (issue: { readonly input?: unknown }): string =>
  isRounded(issue.input) ? 'must be a bigint if beyond 2^53' : must('be an integer from -2^63 to 2^63-1')(issue);

/** An int64 in a JSON body, read exactly: `parseJson` returns small integers as numbers and large ones as bigints. */
export const int64 = z
  .union([z.int({ error: RANGE }), z.bigint()], { error: RANGE })
  .transform(BigInt)
  .refine((value) => value >= INT64_MIN && value <= INT64_MAX, { error: RANGE })
  // JSON Schema has no bigint.
  .meta({ type: 'integer', format: 'int64' });

/** An id that the service assigns. */
export const id = int64.describe(
  'Assigned by the service. It can be any 64-bit integer: read it as an exact integer or as text.',
);

/** An int64 in a path or a query, in canonical decimal digits as the service writes them; undefined otherwise. */
export function parseInt64(text: string): bigint | undefined {
  if (!/^(?:0|-?[1-9]\d{0,18})$/.test(text)) return undefined;
  const value = BigInt(text);
  return value >= INT64_MIN && value <= INT64_MAX ? value : undefined;
}
