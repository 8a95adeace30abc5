import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { withSettingsTables } from '../deploy/settings-tables.ts';

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

test('the tables of settings are those of the schemas; `npm run generate` writes them', () => {
  expect(withSettingsTables(readme)).toBe(readme);
  const missing = withSettingsTables(readme.replace(/\| `CORE_TIMEOUT_MS`.*\n/, ''));
  expect(missing).toBe(readme);
});
