import { type Browser, chromium } from 'playwright-core';
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
