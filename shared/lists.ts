/** The pairs of a flat list of names and values in turn, as Node gives raw headers and Redis the fields of a hash. */
export const pairsOf = (flat: readonly string[]): [name: string, value: string][] =>
  flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));

/** What stands between the commas of a list, as in settings and headers (RFC 9110 §5.6.1). */
export const listed = (text: string): string[] => text.split(',').map((entry) => entry.trim());
