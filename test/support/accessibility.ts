import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * Checks the contrast, names, labels, landmarks and ids of a page with axe-core.
 * @returns the faults, one line per element, and the number of checks that passed, which is 0 for an empty page
 */
export async function shortcomings(page: Page): Promise<{ passed: number; found: string[] }> {
  // This runs in the debugger, so the page's script policy does not apply.
  await page.evaluate(AXE);
  const { violations, passes } = (await page.evaluate('globalThis.axe.run()')) as AxeResults;
  const found = violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(' ')}`));
  return { passed: passes.reduce((sum, { nodes }) => sum + nodes.length, 0), found };
}
