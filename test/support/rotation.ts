import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { type EverydayLoad, readAndWrite } from './load.ts';
import { ROOT } from './process.ts';
import { type Stack, temporaryFolder, UNLIMITED } from './stack.ts';

/** Rotates secrets under load with the commands from deploy/RUNBOOK.md. */

const CONNECTIONS = 8;
const PAUSE_MS = 20;
export const OLD = 'the-old-secret-of-the-test';
export const NEW = 'the-new-secret-of-the-test';
const SERVED = ['GET 200', 'POST 201'];
export const WITHIN = { timeout: 30_000 };

const RUNBOOK = await readFile(join(ROOT, 'deploy/RUNBOOK.md'), 'utf8');

/** The lines of a section that start with `beginning`. Removes it, and inserts the secrets. */
export function linesOf(section: string, beginning: string): string[] {
  const [, text = ''] = RUNBOOK.split(`### ${section}\n`);
  const lines = (text.split('\n##')[0] ?? '').split('\n').filter((line) => line.startsWith(`    ${beginning} `));
  expect(lines.length).toBeGreaterThan(0);
  return lines.map((line) =>
    line
      .slice(4 + beginning.length + 1)
      .replaceAll('$OLD', OLD)
      .replaceAll('$NEW', NEW),
  );
}

/** The value that a section writes into a file, between the quotes. */
export const valuesOf = (section: string): string[] =>
  linesOf(section, 'printf %s').map((line) => line.split('"')[1] ?? '');

/** Replaces the host in a value from the runbook by that of the test's server. */
export const elsewhere = (url: string, host: string): string => url.replace(/@[^/]*/, `@${host}`);

export async function secretFile(content: string): Promise<string> {
  const path = join(await temporaryFolder(), 'secret');
  await writeFile(path, content);
  return path;
}

export async function startLoad({ gateway, issueKey }: Stack, connections = CONNECTIONS, pauseMs = PAUSE_MS) {
  return readAndWrite(gateway, await issueKey(UNLIMITED), connections, pauseMs);
}

/** Waits until this many more requests are complete. */
export async function serves({ requests }: EverydayLoad, more = 30): Promise<void> {
  const before = requests.length;
  await expect.poll(() => requests.length, WITHIN).toBeGreaterThan(before + more);
}

export async function expectNoFailure(load: EverydayLoad): Promise<void> {
  await serves(load);
  await load.end();
  expect([...load.outcomes.keys()].sort()).toEqual(SERVED);
}
