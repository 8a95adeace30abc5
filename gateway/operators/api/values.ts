import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { type PlanField, rangeOf, ruleOf } from '../../limiter/plans.ts';
import { MAX_TAGS, TAG_NAME, TAG_NAME_RULE, TAG_VALUE, TAG_VALUE_RULE } from '../../limiter/tags.ts';
import { line } from '../../stores/key-hash.ts';

/** Who makes a change, and why. */
export const who = {
  author: line(100).optional(),
  reason: z.union([line(500), z.literal('')], { error: must('be a string') }).optional(),
};

export const time = z.iso.datetime({ offset: true, error: must('be an RFC 3339 time like 2026-11-25T14:05:00Z') });

/** Refuses a member `__proto__` as a bad name, because Zod's records drop it silently. @param fault follows the name */
export const refusingProto = <S extends z.ZodType>(record: S, fault: string) =>
  z.preprocess((given, context) => {
    if (typeof given === 'object' && given !== null && Object.hasOwn(given, '__proto__'))
      context.addIssue({ code: 'custom', path: ['__proto__'], message: fault });
    return given;
  }, record);

const NO_TAG_NAME = `is not a tag name: a name has ${TAG_NAME_RULE}`;

/** All tags of a key. */
export const tags = refusingProto(
  z
    .record(
      z.string().regex(TAG_NAME),
      z.string({ error: must('be a string') }).regex(TAG_VALUE, `must have ${TAG_VALUE_RULE}`),
      { error: ({ code }) => (code === 'invalid_key' ? NO_TAG_NAME : 'must be an object of strings') },
    )
    .refine((given) => Object.keys(given).length <= MAX_TAGS, `must have at most ${MAX_TAGS} entries`),
  NO_TAG_NAME,
);

/** A number of a plan in an operator's request. */
export function planNumber(field: PlanField) {
  const [{ least, most }, error] = [ruleOf(field), must(`be ${rangeOf(field)}`)];
  return z.int({ error }).min(least, { error }).max(most, { error });
}

/** A limit in an operator's request. */
export const limitValue = planNumber('minute');
