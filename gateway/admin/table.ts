export type Cell = string | number | undefined;

/**
 * Rows of cells as aligned columns under a head; numbers to the right. Control characters, which a hand on the data can
 * put anywhere, would do as they like with a terminal: they are shown as a mark.
 * @param paint colours a cell that has its width already
 */
export function table(
  head: readonly string[],
  rows: readonly (readonly Cell[])[],
  paint: (text: string, column: string) => string = (text) => text,
): string {
  const cells = [head, ...rows.map((row) => row.map((cell) => harmless(String(cell ?? '-'))))];
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const isNumeric = head.map((_, column) => rows.every((row) => typeof row[column] !== 'string'));
  const line = (row: readonly string[]) =>
    row.map((cell, column) => {
      const width = widths[column] ?? 0;
      const isLast = column === row.length - 1;
      const padded = isNumeric[column] ? cell.padStart(width) : isLast ? cell : cell.padEnd(width);
      return row === head ? padded : paint(padded, head[column] ?? '');
    });
  return cells.map((row) => line(row).join('  ')).join('\n');
}

export const harmless = (text: string): string => text.replaceAll(/\p{Cc}/gu, '\u{fffd}');
