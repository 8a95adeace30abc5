import { readSettingFile, textsRead } from '../../shared/process/env.ts';
import { every } from '../../shared/process/repeat.ts';

const LOOK_EVERY_MS = 1_000;

/** Set in the environment of a worker that must ask its primary for the contents of the files that settings name. */
export const ASKS_FOR_FILES = 'GATEWAY_ASKS_FOR_FILES';
/** The worker's request, and the primary's reply. */
export interface FilesMessage {
  readonly files: ReadonlyMap<string, string> | 'please';
}

/**
 * Watches the files that settings name. A bad file changes nothing for running workers. A worker that starts while a
 * file is bad gets the last good text from its primary.
 * @param readSettings throws if the settings are invalid
 * @returns a function that returns the last good texts, or undefined if all files are good, in which case a worker can
 *   read them itself
 */
export function lastGoodFiles(readSettings: () => unknown): () => ReadonlyMap<string, string> | undefined {
  let good = textsRead();
  const insteadOfBad = () => {
    try {
      if ([...good].every(([path, text]) => readSettingFile(path) === text)) return undefined;
      readSettings();
      good = textsRead();
      return undefined;
    } catch {
      return good;
    }
  };
  if (good.size > 0) every(LOOK_EVERY_MS, insteadOfBad);
  return insteadOfBad;
}

/** Called in a worker before it reads its settings. */
export async function filesOfPrimary(): Promise<ReadonlyMap<string, string>> {
  const { promise, resolve } = Promise.withResolvers<ReadonlyMap<string, string>>();
  const take = ({ files }: Partial<FilesMessage>) => files instanceof Map && resolve(files);
  process.on('message', take);
  process.send?.({ files: 'please' } satisfies FilesMessage);
  return await promise.finally(() => process.off('message', take));
}
