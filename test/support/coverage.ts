import { mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import v8 from '@vitest/coverage-v8';
import type { CoverageProviderModule } from 'vitest/node';

/**
 * Vitest's V8 provider, of which two things are changed. Its option counts every project of a run; this counts projects
 * with COVERAGE=1. It reads what processes wrote at their end, and fails at a file that a killed one left half written;
 * this passes it whole files only.
 */
const isCounted = process.env.COVERAGE === '1';

/** Where processes write, in the folder that the provider reads. */
let written: string | undefined;

async function startCoverage(options: Parameters<NonNullable<CoverageProviderModule['startCoverage']>>[0]) {
  await v8.startCoverage?.(options);
  if (v8.extendedContextCoverageDir === undefined) return;
  written = join(v8.extendedContextCoverageDir, 'written');
  await mkdir(written, { recursive: true });
  process.env.NODE_V8_COVERAGE = written;
}

async function takeWhole(folder: string): Promise<void> {
  for (const file of await readdir(folder)) {
    const path = join(folder, file);
    if (isWhole(await readFile(path, 'utf8'))) await rename(path, join(folder, '..', file));
  }
}

function isWhole(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}

export default {
  getProvider: () => v8.getProvider(),
  startCoverage: (options) => (isCounted ? startCoverage(options) : undefined),
  async takeCoverage(options) {
    if (!isCounted) return undefined;
    if (written !== undefined) await takeWhole(written);
    return await v8.takeCoverage?.(options);
  },
  stopCoverage: (options) => (isCounted ? v8.stopCoverage?.(options) : undefined),
} satisfies CoverageProviderModule;
