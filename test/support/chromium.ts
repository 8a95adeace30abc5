import { type Browser, chromium } from 'playwright-core';
import { need } from './install.ts';

/** A real headless browser. The caller closes it. */
export async function launchChromium(env?: Record<string, string>): Promise<Browser> {
  // Chromium's sandbox refuses to run as root.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return await chromium.launch({ executablePath: need('chromium-headless-shell'), args, ...(env && { env }) });
}
