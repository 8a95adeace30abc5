import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeApi } from '../../gateway/reference/openapi.ts';
import { temporaryFolder } from './stack.ts';

/** The description of the API in JSON. */
export const description = JSON.stringify(describeApi());

/** Writes the description to a file, for tools that read files. @returns its path */
export async function descriptionFile(): Promise<string> {
  const path = join(await temporaryFolder(), 'openapi.json');
  writeFileSync(path, description);
  return path;
}
