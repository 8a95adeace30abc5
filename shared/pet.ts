import { z } from 'zod';
import { int64 } from './int64.ts';
import { must } from './must.ts';

export const PetStatus = z.enum(['available', 'pending', 'sold'], {
  error: must('be one of available, pending, sold'),
});

const MAX_NAME_CHARACTERS = 200;

/** A pet's name: characters are Unicode code points, as a reader would count them. */
const petName = z
  .string({ error: must('be a string') })
  .refine((text) => text !== '' && [...text].length <= MAX_NAME_CHARACTERS, {
    error: `must have 1 to ${MAX_NAME_CHARACTERS} characters`,
  })
  .refine((text) => text.isWellFormed(), { error: 'must be well-formed Unicode' })
  .refine((text) => !/\p{Cc}/u.test(text), { error: 'must not have control characters' });

/** What a client sends to add an animal. */
export const NewPet = z.strictObject({
  name: petName,
  categoryId: int64,
  status: PetStatus.default('available'),
});

/** An animal as the store gives it out. */
export const Pet = NewPet.extend({ id: int64 });

export type PetStatus = z.infer<typeof PetStatus>;
export type NewPet = z.infer<typeof NewPet>;
export type Pet = z.infer<typeof Pet>;
