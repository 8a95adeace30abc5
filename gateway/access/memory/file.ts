import { readFile, rename } from 'node:fs/promises';
import { throughDraft } from '../../../shared/draft.ts';
import { AccessUnavailable } from '../limiter.ts';

/** A small JSON file for its owner's eyes: read whole, and replaced whole, so that a crash leaves the old one or the new. */
export class JsonFile {
  readonly #path: string;
  #last: Promise<unknown> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  /** The value in the file; undefined where there is none. @throws when it is not JSON */
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
   * One replacement at a time, each made of what is there when its turn comes: none undoes another.
   * @param written called once the value is on disk, before the next replacement is made
   * @throws {AccessUnavailable} when it cannot be written, and what `make` throws
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
      throw new AccessUnavailable(`${this.#path} cannot be written: ${fault.message}`);
    });
  }
}
