import { z } from 'zod';
import type { Fields } from './storage.ts';

/** Undefined for a text that is not the JSON of such a value, for example after an edit by hand. */
export function readJson<T>(schema: z.ZodType<T>, text = ''): T | undefined {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** The fields of a log's entry, with the list of changes that one of them stores as JSON. */
export const readChanges = ({ changes, ...fields }: Fields) => ({ ...fields, changes: readJson(z.unknown(), changes) });
