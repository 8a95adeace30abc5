import { type Browser, chromium, type Page } from 'playwright-core';
import { cleanUp } from './clean-up.ts';
import { installPackage, pathOf } from './install.ts';

/** A real browser, without a window. Gone after the test, or after its file. */
export async function openBrowser(): Promise<Browser> {
  // Chromium's sandbox refuses to run as root.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({ executablePath: findChromium() ?? installChromium(), args });
  cleanUp(() => browser.close());
  return browser;
}

const findChromium = (): string | undefined =>
  ['chromium', 'chromium-browser', 'google-chrome'].map(pathOf).find((path) => path !== undefined);

function installChromium(): string {
  installPackage('chromium', 'put chromium on PATH');
  return findChromium() as string;
}

export interface WatchedPage {
  readonly page: Page;
  /** What went wrong in it, refusals by its content security policy included, and where it asked outside its origin. */
  readonly faults: string[];
}

/** A page in a session of its own, not yet anywhere. Gone after the test: one that stays goes on asking. */
export async function watchedPage(
  browser: Browser,
  origin: string,
  options: Parameters<Browser['newPage']>[0] = {},
): Promise<WatchedPage> {
  const page = await browser.newPage(options);
  cleanUp(() => page.close());
  const faults: string[] = [];
  page.on('pageerror', ({ message }) => faults.push(message));
  page.on('console', (message) => void (message.type() === 'error' && faults.push(message.text())));
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin && !request.url().startsWith('data:')) faults.push(request.url());
  });
  return { page, faults };
}
