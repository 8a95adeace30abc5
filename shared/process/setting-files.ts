import { readFileSync } from 'node:fs';

const read = new Map<string, string>();
let instead: ReadonlyMap<string, string> = new Map();

/** The text of a file that a setting names. */
export function readSettingFile(path: string): string {
  const text = instead.get(path) ?? readFileSync(path, 'utf8');
  read.set(path, text);
  return text;
}

/** The text last read from each file that a setting names. */
export const textsRead = (): ReadonlyMap<string, string> => new Map(read);

/** Uses these texts in place of their files from now on; undefined goes back to the files. */
export function readInstead(texts: ReadonlyMap<string, string> | undefined): void {
  instead = texts ?? new Map();
}
