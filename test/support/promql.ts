/** Finds the metrics and labels in a PromQL expression. Sufficient for our own expressions; not a full parser. */

export interface Named {
  readonly metrics: readonly string[];
  /** Labels used in matchers and groupings. */
  readonly labels: readonly string[];
}

const WORDS = new Set('by without and or unless on ignoring offset bool group_left group_right'.split(' '));
/** Labels of histograms, created by Prometheus. */
const MADE = new Set(['le']);

export function namedIn(expression: string): Named {
  const labels = new Set<string>();
  const matchers = /\{([^}]*)\}/g;
  const groupings = /\b(?:by|without|on|ignoring)\s*\(([^)]*)\)/g;
  for (const [, inside = ''] of expression.matchAll(matchers))
    for (const [, label] of inside.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)) labels.add(label as string);
  for (const [, inside = ''] of expression.matchAll(groupings))
    for (const label of inside.split(',')) labels.add(label.trim());
  const rest = expression
    .replaceAll(matchers, ' ')
    .replaceAll(groupings, ' ')
    .replaceAll(/\[[^\]]*\]/g, ' ');
  // A name before a parenthesis is a function. A duration begins with a digit.
  const names = [...rest.matchAll(/(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])/g)].map(([name]) => name);
  return {
    metrics: names.filter((name) => !WORDS.has(name)),
    labels: [...labels].filter((label) => label !== '' && !MADE.has(label)),
  };
}
