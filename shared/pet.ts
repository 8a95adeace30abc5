import { z } from 'zod';
import { int64 } from './int64.ts';
import { must } from './must.ts';

export const PetStatus = z.enum(['available', 'pending', 'sold'], {
  error: must('be one of available, pending, sold'),
});

const MAX_NAME_CHARACTERS = 200;

/**
 * A pet's name: characters are Unicode code points, as a reader would count them. `meta` says in JSON Schema what the
 * refinements say in code.
 */
const petName = z
  .string({ error: must('be a string') })
  .refine((text) => text !== '' && [...text].length <= MAX_NAME_CHARACTERS, {
    error: `must have 1 to ${MAX_NAME_CHARACTERS} characters`,
  })
  .refine((text) => /[^ ]/.test(text), { error: 'must not be of spaces alone' })
  .refine((text) => text.isWellFormed(), { error: 'must be well-formed Unicode' })
  .refine((text) => !/\p{Cc}/u.test(text), { error: 'must not have control characters' })
  .meta({ minLength: 1, maxLength: MAX_NAME_CHARACTERS, pattern: '^[^\\p{Cc}\\p{Cs}]*$' });

const fields = { name: petName, categoryId: int64, status: PetStatus };

/** What a client sends to add an animal. */
export const NewPet = z.strictObject({ ...fields, status: PetStatus.default('available') });

/** What an internal service sends to change one: what is left out stays as it is. */
export const PetChanges = z
  .strictObject(fields)
  .partial()
  .refine((changes) => Object.keys(changes).length > 0, { error: 'it changes nothing' });

/** An animal as the store gives it out. */
export const Pet = z.strictObject({ id: int64, ...fields });

export type PetStatus = z.infer<typeof PetStatus>;
export type NewPet = z.infer<typeof NewPet>;
export type PetChanges = z.infer<typeof PetChanges>;
export type Pet = z.infer<typeof Pet>;
