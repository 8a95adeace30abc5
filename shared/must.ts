/**
 * For a schema's `error`: what a value must be, or that it is missing. Reads behind a member's name.
 */
export const must = (be: string) => (issue: { readonly input?: unknown }) =>
  issue.input === undefined ? 'is required' : `must ${be}`;
