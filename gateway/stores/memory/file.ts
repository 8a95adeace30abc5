import { readFile, rename } from 'node:fs/promises';
import { throughDraft } from '../../../shared/process/draft.ts';
import { StoreUnavailable } from '../../limiter/limiter.ts';

/**
 * A small JSON file that only its owner can read. It is read and replaced as a whole, so a crash leaves the old or the
 * new content.
 */
export class JsonFile {
  readonly #path: string;
  #last: Promise<unknown> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  /** The value in the file; undefined if there is no file. @throws if it is not JSON */
  async read(): Promise<unknown> {
    const text = await readFile(this.#path, 'utf8').catch((fault: NodeJS.ErrnoException) => {
      if (fault.code === 'ENOENT') return undefined;
      throw fault;
    });
    if (text === undefined) return undefined;
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new Error(`${this.#path} is not JSON; mend it, or move it away to start afresh.`, { cause });
    }
  }

  /**
   * One replacement at a time. Each is made from the content at its turn, so none undoes another.
   * @param written called once the value is on disk, before the next replacement is made
   * @throws {StoreUnavailable} if it cannot be written, and whatever `make` throws
   */
  replace(make: () => unknown, written: () => void = () => {}): Promise<void> {
    const turn = async () => {
      await this.#write(await make());
      written();
    };
    const done = this.#last.then(turn, turn);
    this.#last = done;
    return done;
  }

  async #write(value: unknown): Promise<void> {
    const text = `${JSON.stringify(value, undefined, 2)}\n`;
    await throughDraft(this.#path, text, rename).catch((fault: Error) => {
      throw new StoreUnavailable(`${this.#path} cannot be written: ${fault.message}`);
    });
  }
}
