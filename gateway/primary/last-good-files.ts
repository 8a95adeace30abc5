import { readSettingFile, textsRead } from '../../shared/process/env.ts';
import { every } from '../../shared/process/repeat.ts';

const LOOK_EVERY_MS = 1_000;

/** Set in the environment of a worker that must ask its primary for the contents of the files that settings name. */
export const ASKS_FOR_FILES = 'GATEWAY_ASKS_FOR_FILES';
/** The worker's question, and the answer. */
export interface FilesMessage {
  readonly files: ReadonlyMap<string, string> | 'please';
}

/**
 * The last good texts of the files that settings name. A bad file changes nothing for running workers. A worker that
 * starts meanwhile gets the last good text from its primary.
 */
export class LastGoodFiles {
  readonly #readSettings: () => unknown;
  #good = textsRead();

  /** @param readSettings throws if the settings are invalid */
  constructor(readSettings: () => unknown) {
    this.#readSettings = readSettings;
    if (this.#good.size > 0) every(LOOK_EVERY_MS, () => this.#areGood());
  }

  /** Undefined if all files are good: a worker then reads them itself. */
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

/** Called in a worker before it reads its settings. */
export async function filesOfPrimary(): Promise<ReadonlyMap<string, string>> {
  const { promise, resolve } = Promise.withResolvers<ReadonlyMap<string, string>>();
  const take = ({ files }: Partial<FilesMessage>) => files instanceof Map && resolve(files);
  process.on('message', take);
  process.send?.({ files: 'please' } satisfies FilesMessage);
  return await promise.finally(() => process.off('message', take));
}
