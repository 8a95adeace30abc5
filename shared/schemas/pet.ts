import { z } from 'zod';
import { id, int64 } from './int64.ts';
import { must } from './must.ts';

export const PetStatus = z
  .enum(['available', 'pending', 'sold'], { error: must('be one of available, pending, sold') })
  .describe('The availability of a pet.');

const MAX_NAME_CHARACTERS = 200;

/**
 * Patterns use only what JavaScript (with and without the u flag), Python, Java, Go and Perl have in common: no \p, no
 * \s, only \xHH. In Python, Java and Perl, `$` also matches before a final line feed, so a second pattern without an
 * anchor refuses control characters.
 */
const CONTROL_CHARACTER = '[\\x00-\\x1f\\x7f-\\x9f]';
const NOT_BLANK = '^[\\x20\\xa0]*[^\\x00-\\x20\\x7f-\\xa0][^\\x00-\\x1f\\x7f-\\x9f]*$';

/**
 * A pet's name. Its length counts Unicode code points, which are counted, and checked further, only in a short text.
 * `meta` repeats the refinements as JSON Schema.
 */
const petName = z
  .string({ error: must('be a string') })
  .refine((text) => text !== '' && text.length <= 2 * MAX_NAME_CHARACTERS && [...text].length <= MAX_NAME_CHARACTERS, {
    error: `must have 1 to ${MAX_NAME_CHARACTERS} characters`,
    abort: true,
  })
  .refine((text) => text.isWellFormed(), { error: 'must be well-formed Unicode' })
  .refine((text) => !/\p{Cc}/u.test(text), { error: 'must not contain control characters' })
  .refine((text) => /[^ \xa0]/.test(text), { error: 'must not be blank' })
  .meta({
    description: "The pet's name. Its length is counted in Unicode code points.",
    minLength: 1,
    maxLength: MAX_NAME_CHARACTERS,
    pattern: NOT_BLANK,
    not: { pattern: CONTROL_CHARACTER },
  });

const categoryId = int64.describe('The category to which the pet belongs.');
const fields = { name: petName, categoryId, status: PetStatus };

/** The body of a request that adds a pet. */
export const NewPet = z
  .strictObject({
    ...fields,
    status: PetStatus.default('available').describe('The availability of the pet. Default: `available`.'),
  })
  .describe('A pet to add.');

/** The body of an internal request that changes a pet. Omitted members stay unchanged. */
export const PetChanges = z
  .strictObject(fields)
  .partial()
  .refine((changes) => Object.keys(changes).length > 0, { error: 'it changes nothing' });

/** A pet as the store returns it. */
export const Pet = z.strictObject({ id, ...fields }).describe('A pet.');

export type PetStatus = z.infer<typeof PetStatus>;
export type NewPet = z.infer<typeof NewPet>;
export type PetChanges = z.infer<typeof PetChanges>;
export type Pet = z.infer<typeof Pet>;
