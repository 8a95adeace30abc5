import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { CodeSample } from '../../gateway/reference/document.ts';
import { SAMPLE_ORIGIN } from '../../gateway/reference/openapi.ts';

const run = promisify(execFile);

const COMMANDS: Readonly<Record<string, (source: string) => readonly [string, ...string[]]>> = {
  curl: (source) => ['sh', '-c', source.replace('curl -i', 'curl -sS -i')],
  fetch: (source) => [process.execPath, '--input-type=module', '-e', source],
  Python: (source) => ['python3', '-c', source],
};

/** The languages of the samples of each operation. */
export const LANGUAGES = Object.keys(COMMANDS);

/** Runs a sample against a gateway, with the key in the environment. @returns its output */
export async function runSample({ label, source }: CodeSample, gateway: string, key: string): Promise<string> {
  const [command, ...args] = (COMMANDS[label] as (typeof COMMANDS)[string])(source.replaceAll(SAMPLE_ORIGIN, gateway));
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, KEY: key };
  return (await run(command, args, { env })).stdout;
}
