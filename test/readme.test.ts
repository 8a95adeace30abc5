import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FILES, withTables } from '../deploy/written-tables.ts';

const read = (file: string) => readFileSync(new URL(`../${file}`, import.meta.url), 'utf8');

test.for([
  ['README.md', 'CORE_TIMEOUT_MS'],
  ['gateway/README.md', 'ban_seconds'],
  ['gateway/operators/cli/README.md', 'keys top'],
] as const)('the tables of %s are those of the code; `npm run generate` writes them', ([file, row]) => {
  const text = read(file);
  expect(withTables(file, text)).toBe(text);
  const cut = text.replace(new RegExp(`\\| \`${row}\`.*\\n`), '');
  expect(cut).not.toBe(text);
  expect(withTables(file, cut)).toBe(text);
  expect(FILES).toContain(file);
});
