/** Rows of cells as aligned columns under a head; numbers to the right. */
export function table(head: readonly string[], rows: readonly (readonly (string | number | undefined)[])[]): string {
  const cells = [head, ...rows.map((row) => row.map((cell) => String(cell ?? '-')))];
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const isNumeric = head.map((_, column) => rows.every((row) => typeof row[column] !== 'string'));
  const line = (row: readonly string[]) =>
    row.map((cell, column) =>
      isNumeric[column] ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
    );
  return cells.map((row) => line(row).join('  ').trimEnd()).join('\n');
}
