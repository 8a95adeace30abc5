import { type Browser, chromium } from 'playwright-core';
import { need } from './install.ts';

/** A real headless browser. The caller closes it. */
export async function launchChromium(env?: Record<string, string>): Promise<Browser> {
  // Pages of one session and site share a process, because each new process first compiles the page's scripts.
  const args = ['--process-per-site'];
  // Chromium's sandbox refuses to run as root.
  if (process.getuid?.() === 0) args.push('--no-sandbox');
  return await chromium.launch({ executablePath: need('chromium-headless-shell'), args, ...(env && { env }) });
}
