import type { z } from 'zod';

/** The `error` of a schema: what a value must be, or that it is missing. The message follows a member's name. */
export const must = (be: string) => (issue: { readonly input?: unknown }) =>
  issue.input === undefined ? 'is required' : `must ${be}`;

/** The faults of a value, each as one clause. @param name of a value that is not a member */
export function faultsOf(error: z.ZodError, name?: string): string {
  const faults = error.issues.map((issue) => {
    if (issue.code === 'unrecognized_keys') return `${issue.keys.map(quoted).join(', ')} is not known`;
    if (issue.code === 'invalid_type' && issue.path.length === 0) return 'a JSON object is expected';
    const path = [...(name === undefined ? [] : [name]), ...issue.path].map((part) => (part === '' ? '""' : part));
    return `${path.join('.')} ${issue.message}`.trimStart();
  });
  return faults.join('; ');
}

const quoted = (key: string): string => JSON.stringify(key);
