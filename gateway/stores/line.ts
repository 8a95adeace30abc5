import { z } from 'zod';
import { must } from '../../shared/schemas/must.ts';
import { MAX_KEY_NAME_LENGTH } from '../limiter/key-record.ts';

/** One line of text from an operator, safe for a log, a table and a terminal. Its length is in Unicode code points. */
export const line = (maxCharacters: number) =>
  z
    .string({ error: must('be a string') })
    .regex(/^\P{Cc}+$/u, 'must not be empty or have control characters')
    .max(maxCharacters, `must have at most ${maxCharacters} characters`)
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');

/** The name of a key or a secret, whether it is issued, typed by hand or restored. */
export const keyName = line(MAX_KEY_NAME_LENGTH);

/** Whether a text can be the name of a key or a secret. */
export const isName = (text: string): boolean => keyName.safeParse(text).success;
