/** Pairs from a flat list of alternating names and values: Node's raw headers, or the fields of a Redis hash. */
export const pairsOf = (flat: readonly string[]): [name: string, value: string][] =>
  flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));

/** The entries of a comma-separated list, as in settings and headers (RFC 9110 §5.6.1). */
export const listed = (text: string): string[] => text.split(',').map((entry) => entry.trim());

/**
 * Removes one element from a list. For elements that change with each request, a list needs less memory than a Set: V8
 * replaces a Set's tables as its members change, and each old table keeps the next one and its contents alive. Once one
 * table is in old space, all later ones follow, until a full collection of old space.
 */
export function takeOut<T>(list: T[], one: T): void {
  // The oldest element usually leaves first.
  if (list[0] === one) {
    list.shift();
    return;
  }
  const at = list.indexOf(one);
  if (at !== -1) list.splice(at, 1);
}
