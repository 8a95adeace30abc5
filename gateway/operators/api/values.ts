import { z } from 'zod';
import { must } from '../../../shared/schemas/must.ts';
import { MAX_LIMIT } from '../../limiter/plans.ts';
import { MAX_TAGS, TAG_NAME, TAG_NAME_RULE, TAG_VALUE, TAG_VALUE_RULE } from '../../limiter/tags.ts';

/** One line of text from an operator, safe for a log, a table and a terminal. */
export const line = (maxCharacters: number) =>
  z
    .string({ error: must('be a string') })
    .regex(/^\P{Cc}+$/u, 'must not be empty or have control characters')
    .max(maxCharacters, `must have at most ${maxCharacters} characters`)
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');

/** Who makes a change, and why. */
export const who = {
  author: line(100).optional(),
  reason: line(500).or(z.literal('')).optional(),
};

/** The tags of a key: all of them. */
export const tags = z
  .record(
    z.string().regex(TAG_NAME),
    z.string({ error: must('be a text') }).regex(TAG_VALUE, `must have ${TAG_VALUE_RULE}`),
    {
      error: ({ code }) =>
        code === 'invalid_key' ? `is no name of a tag: it has ${TAG_NAME_RULE}` : 'must be an object of texts',
    },
  )
  .refine((given) => Object.keys(given).length <= MAX_TAGS, `must be at most ${MAX_TAGS}`);

/** A number in an operator's request, from the least one to that of the largest limit. */
export function numberFrom(least: number) {
  const error = must(`be a whole number from ${least} to ${MAX_LIMIT}`);
  return z.int({ error }).min(least, { error }).max(MAX_LIMIT, { error });
}

/** A limit in an operator's request. */
export const limitValue = numberFrom(1);
