import type { Browser, Page } from 'playwright-core';
import { launchChromium } from './chromium.ts';
import { cleanUp } from './clean-up.ts';

let browser: Promise<Browser> | undefined;

/** A real headless browser. All test files of a process share one, which closes with the process. */
export const openBrowser = (): Promise<Browser> => (browser ??= launchChromium());

export interface WatchedPage {
  readonly page: Page;
  /** The page's errors, including violations of its content security policy, and its requests to other origins. */
  readonly faults: string[];
}

/** Chromium interrupts requests when containers that start or stop during the tests change the machine's network. */
const OF_THE_MACHINE = /ERR_NETWORK_CHANGED/;

const PATIENCE_MS = 60_000;

/**
 * Opens an empty page in its own session, and closes it after the test, because an open page keeps sending requests.
 */
export async function watchedPage(
  browser: Browser,
  origin: string,
  options: Parameters<Browser['newPage']>[0] = {},
): Promise<WatchedPage> {
  const page = await browser.newPage(options);
  // A browser is slow while other tests run.
  page.setDefaultTimeout(PATIENCE_MS);
  cleanUp(() => page.close());
  const faults: string[] = [];
  page.on('pageerror', ({ message }) => faults.push(message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !OF_THE_MACHINE.test(message.text())) faults.push(message.text());
  });
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin && !request.url().startsWith('data:')) faults.push(request.url());
  });
  return { page, faults };
}
