import { readSettingFile, textsRead } from '../../shared/process/setting-files.ts';

const LOOK_EVERY_MS = 1_000;

/** In the environment of a worker: it asks its primary for the texts of the settings' files. */
export const ASKS_FOR_FILES = 'GATEWAY_ASKS_FOR_FILES';
/** What it asks with, and what it is answered. */
export interface FilesMessage {
  readonly files: ReadonlyMap<string, string> | 'please';
}

/**
 * The last good texts of the files that settings name. A file that is no good changes nothing for the workers that run.
 * One that starts meanwhile gets the last good text from its primary.
 */
export class LastGoodFiles {
  readonly #readSettings: () => unknown;
  #good = textsRead();

  /** @param readSettings throws if they have a fault */
  constructor(readSettings: () => unknown) {
    this.#readSettings = readSettings;
    if (this.#good.size > 0) setInterval(() => this.#areGood(), LOOK_EVERY_MS).unref();
  }

  /** Undefined if all files are good: then a worker reads them itself. */
  insteadOfBad(): ReadonlyMap<string, string> | undefined {
    return this.#areGood() ? undefined : this.#good;
  }

  #areGood(): boolean {
    try {
      if ([...this.#good].some(([path, text]) => readSettingFile(path) !== text)) {
        this.#readSettings();
        this.#good = textsRead();
      }
      return true;
    } catch {
      return false;
    }
  }
}

/** In a worker, before it reads its settings. */
export async function filesOfPrimary(): Promise<ReadonlyMap<string, string>> {
  const { promise, resolve } = Promise.withResolvers<ReadonlyMap<string, string>>();
  const take = ({ files }: Partial<FilesMessage>) => files instanceof Map && resolve(files);
  process.on('message', take);
  process.send?.({ files: 'please' } satisfies FilesMessage);
  return await promise.finally(() => process.off('message', take));
}
