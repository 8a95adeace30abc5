/** Finds variables that are probably misspelt settings. Otherwise they would be ignored and the defaults used. */

/**
 * Names of one word, such as HOST and PORT, are too similar to other programs' variables (GHOST, PORTS, WORKER): for
 * these, only two swapped letters count as a slip, because no program uses a word like PROT.
 */
const canBeMeant = (name: string, setting: string): boolean =>
  setting.includes('_') || (name !== setting && sorted(name) === sorted(setting));

const sorted = (text: string): string => [...text].sort().join('');

/**
 * Variables that look like an unset setting, each with that setting. If the setting itself is set, the variable is not
 * considered misspelt.
 * @param given names of the variables that are set
 */
export function misspelt(given: readonly string[], settings: readonly string[]): [name: string, meant: string][] {
  const missing = settings.filter((setting) => !given.includes(setting));
  return given
    .filter((name) => !settings.includes(name))
    .flatMap((name) => {
      const upper = name.toUpperCase();
      const meant = missing.find((setting) => canBeMeant(upper, setting) && looksLike(upper, setting));
      return meant === undefined ? [] : [[name, meant] as [string, string]];
    });
}

/**
 * One slip in a letter or an underscore, or a name without its last words. With two slips, SSL_CERT_FILE would match
 * TLS_CERT_FILE.
 */
export function looksLike(name: string, setting: string): boolean {
  if (name.includes('_') && setting.startsWith(`${name}_`)) return true;
  return Math.abs(name.length - setting.length) <= 1 && distance(name, setting) <= 1;
}

/** The number of letters added, removed, changed, or swapped with their neighbour (optimal string alignment). */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, at) => at)];
  const cell = (row: number, column: number): number => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= a.length; i++) {
    rows.push([i]);
    for (let j = 1; j <= b.length; j++) {
      const changed = cell(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwap ? cell(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY;
      rows[i]?.push(Math.min(cell(i - 1, j) + 1, cell(i, j - 1) + 1, changed, swapped));
    }
  }
  return cell(a.length, b.length);
}
