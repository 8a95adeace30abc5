import type { Browser, BrowserContext, Page } from 'playwright-core';
import { expect } from 'vitest';
import { launchChromium } from './chromium.ts';
import { cleanUp } from './clean-up.ts';

let browser: Promise<Browser> | undefined;

/** A real headless browser. All test files of a process share one, which closes with the process. */
const openBrowser = (): Promise<Browser> => (browser ??= launchChromium());

/** The shared sessions by origin. */
const sessions = new Map<string, BrowserContext>();

/**
 * Until the end of the test file, pages of this origin without options share a session, and with it the browser's
 * caches and the process that runs their scripts. The storage of each tab remains its own.
 */
export async function shareSession(origin: string): Promise<void> {
  const session = await (await openBrowser()).newContext({ baseURL: origin });
  sessions.set(origin, session);
  cleanUp(async () => {
    sessions.delete(origin);
    await session.close();
  });
  // The process exits with its last page, so this one stays open. It sends no request.
  const page = await session.newPage();
  await page.route('**', (route) => route.fulfill({ body: '' }));
  await page.goto(origin);
}

export interface WatchedPage {
  readonly page: Page;
  /** The page's errors, including violations of its content security policy, and its requests to other origins. */
  readonly faults: string[];
  /** Ignores faults with this text from now on. Any other fault fails the test. */
  excuse(pattern: RegExp): void;
}

/** The browser itself logs failed requests, whatever the page does with them. */
export const FAILED_REQUESTS = /^Failed to load resource/;

/** Chromium interrupts requests when containers that start or stop during the tests change the machine's network. */
const OF_THE_MACHINE = /ERR_NETWORK_CHANGED/;

const PATIENCE_MS = 60_000;

/**
 * Opens an empty page, and closes it after the test, because an open page keeps sending requests. The test fails if the
 * page had a fault.
 * @param options of the page's own session. Without options, the page may be part of a shared session
 */
export async function watchedPage(
  origin: string,
  options?: Parameters<Browser['newPage']>[0],
  browser = openBrowser(),
): Promise<WatchedPage> {
  const session = options === undefined ? sessions.get(origin) : undefined;
  const page = await (session?.newPage() ?? (await browser).newPage({ baseURL: origin, ...options }));
  // A browser is slow while other tests run.
  page.setDefaultTimeout(PATIENCE_MS);
  const faults: string[] = [];
  const excused = [OF_THE_MACHINE];
  const note = (fault: string) => {
    if (!excused.some((pattern) => pattern.test(fault))) faults.push(fault);
  };
  cleanUp(async () => {
    const found = [...faults];
    await page.close();
    expect(found).toEqual([]);
  });
  page.on('pageerror', ({ message }) => note(message));
  page.on('console', (message) => {
    if (message.type() === 'error') note(message.text());
  });
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin && !request.url().startsWith('data:')) note(request.url());
  });
  return { page, faults, excuse: (pattern) => void excused.push(pattern) };
}
