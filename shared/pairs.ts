/** The pairs of a flat list of names and values in turn, as Node gives raw headers and Redis the fields of a hash. */
export const pairsOf = (flat: readonly string[]): [name: string, value: string][] =>
  flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));
