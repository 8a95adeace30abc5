import { readFileSync } from 'node:fs';

/** What was last read from each file. */
const read = new Map<string, string>();
let instead: ReadonlyMap<string, string> = new Map();

/** The text of a file that a setting names. */
export function readSettingFile(path: string): string {
  const text = instead.get(path) ?? readFileSync(path, 'utf8');
  read.set(path, text);
  return text;
}

/** What was last read from each file that a setting names. */
export const textsRead = (): ReadonlyMap<string, string> => new Map(read);

/** From now on these texts stand for their files; none if undefined. */
export function readInstead(texts: ReadonlyMap<string, string> | undefined): void {
  instead = texts ?? new Map();
}
