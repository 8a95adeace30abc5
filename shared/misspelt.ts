/** Finds variables that were meant for a setting, and are not: they would be passed over, and the default be taken. */

/** Names of one word, such as HOST and PORT, are too much like those of others. */
const isOurOwn = (setting: string): boolean => setting.includes('_');

/**
 * Variables that look like a setting which is not set, each with the setting. A variable beside the setting that it looks
 * like is no slip: that setting was found.
 * @param given names of the variables that are set
 */
export function misspelt(given: readonly string[], settings: readonly string[]): [name: string, meant: string][] {
  const missing = settings.filter((setting) => isOurOwn(setting) && !given.includes(setting));
  return given
    .filter((name) => !settings.includes(name))
    .flatMap((name) => {
      const meant = missing.find((setting) => looksLike(name.toUpperCase(), setting));
      return meant === undefined ? [] : [[name, meant] as [string, string]];
    });
}

/** One slip, in a letter or an underscore; or the name without its last words. Two slips make SSL_CERT_FILE of TLS_CERT_FILE. */
function looksLike(name: string, setting: string): boolean {
  if (name.includes('_') && setting.startsWith(`${name}_`)) return true;
  return Math.abs(name.length - setting.length) <= 1 && distance(name, setting) <= 1;
}

/** Letters that were added, left out, changed, or swapped with their neighbour (optimal string alignment). */
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
