import type { Page } from 'playwright-core';

/** The contrast that text needs at least (WCAG 2.2, success criterion 1.4.3). */
const LEAST_CONTRAST = 4.5;

/** Runs in the page. Relative luminance and contrast as WCAG 2.2 defines them. */
const CHECKS = `(() => {
  const found = [];
  const isVisible = (element) => element.checkVisibility({ visibilityProperty: true });
  const told = (element) => element.tagName.toLowerCase() + (element.id && '#' + element.id) + ' ' + element.textContent.trim().slice(0, 30);

  for (const input of document.querySelectorAll('input, select, meter'))
    if (isVisible(input) && !input.getAttribute('aria-label') && input.labels.length === 0) found.push('no label: ' + told(input));
  for (const button of document.querySelectorAll('button'))
    if (isVisible(button) && button.textContent.trim() === '') found.push('no name: ' + told(button));
  for (const clickable of document.querySelectorAll('[onclick], [tabindex], a:not([href])')) found.push('no control: ' + told(clickable));

  const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push('twice there: ' + id);
  for (const attribute of ['aria-labelledby', 'aria-describedby', 'for', 'form'])
    for (const element of document.querySelectorAll('[' + attribute + ']'))
      for (const id of element.getAttribute(attribute).split(' '))
        if (!ids.includes(id)) found.push(attribute + ' leads nowhere: ' + told(element));
  if (document.querySelectorAll('h1').length !== 1) found.push('not one h1');

  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const groundOf = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const ground = channels(getComputedStyle(at).backgroundColor);
      if (ground[3] !== 0) return ground;
    }
    return [255, 255, 255];
  };
  let texts = 0;
  for (const element of document.querySelectorAll('body *')) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '') || element.matches('input, select');
    if (!hasText || !isVisible(element) || element.closest('noscript')) continue;
    texts += 1;
    const [one, other] = [channels(getComputedStyle(element).color), groundOf(element)].map(luminance);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < ${LEAST_CONTRAST}) found.push('contrast ' + contrast.toFixed(2) + ': ' + told(element));
  }
  return { texts, found };
})()`;

/** What is wrong with a page for those who hear it, steer it by keyboard, or see little contrast; and how many texts it has. */
export async function shortcomings(page: Page): Promise<{ texts: number; found: string[] }> {
  return await page.evaluate(CHECKS);
}
