import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * Checks the contrast, names, labels, landmarks and ids of a page with axe-core.
 * @param rules all rules by default
 * @returns the faults, one line per element, and the number of checks that passed, which is 0 for an empty page
 */
export async function shortcomings(page: Page, rules: object = {}): Promise<{ passed: number; found: string[] }> {
  // This runs in the debugger, so the page's script policy does not apply.
  if (!(await page.evaluate('"axe" in globalThis'))) await page.evaluate(AXE);
  // Unique selectors of all checked elements would take a third of the time.
  const options = JSON.stringify({ ...rules, selectors: false });
  const { violations, passes } = (await page.evaluate(`axe.run(${options})`)) as AxeResults;
  const found = violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
  return { passed: passes.reduce((sum, { nodes }) => sum + nodes.length, 0), found };
}

const OF_COLOURS = { runOnly: ['color-contrast', 'link-in-text-block'] };

/**
 * Checks a page in light and dark colours, on a wide screen and on a phone: axe-core finds nothing, and nothing is cut
 * off. Only the rules about colours run again for the dark ones.
 * @returns the number of checks that passed
 */
export async function expectReadable(page: Page): Promise<number> {
  let sum = 0;
  for (const [width, colorScheme] of [
    [1_280, 'light'],
    [375, 'light'],
    [375, 'dark'],
    [1_280, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme });
    const { passed, found } = await shortcomings(page, colorScheme === 'dark' ? OF_COLOURS : {});
    expect([page.url(), width, colorScheme, found]).toEqual([page.url(), width, colorScheme, []]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    sum += passed;
  }
  return sum;
}

/** Checks the background in each colour scheme. axe-core checks text contrast against it. */
export async function expectGrounds(
  page: Page,
  of: 'body' | 'documentElement',
  grounds: Readonly<Record<'dark' | 'light', string>>,
): Promise<void> {
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await page.evaluate(`getComputedStyle(document.${of}).backgroundColor`)).toBe(grounds[colorScheme]);
  }
}
