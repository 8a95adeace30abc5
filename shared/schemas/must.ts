/** The `error` of a schema: what a value must be, or that it is missing. The text follows a member's name. */
export const must = (be: string) => (issue: { readonly input?: unknown }) =>
  issue.input === undefined ? 'is required' : `must ${be}`;
