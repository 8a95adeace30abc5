/** Pairs from a flat list of alternating names and values: Node's raw headers, or the fields of a Redis hash. */
export const pairsOf = (flat: readonly string[]): [name: string, value: string][] =>
  flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));

/** The entries of a comma-separated list, as in settings and headers (RFC 9110 §5.6.1). */
export const listed = (text: string): string[] => text.split(',').map((entry) => entry.trim());
