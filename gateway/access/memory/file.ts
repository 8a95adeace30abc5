import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';

const OWNER_ONLY = 0o600;

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

  /** One replacement at a time, each made of what is there when its turn comes: none undoes another. */
  replace(make: () => unknown): Promise<void> {
    const write = async () => this.#write(await make());
    const written = this.#last.then(write, write);
    this.#last = written;
    return written;
  }

  async #write(value: unknown): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true });
    const draft = `${this.#path}.${randomUUID()}`;
    await writeFile(draft, `${JSON.stringify(value, undefined, 2)}\n`, { mode: OWNER_ONLY, flush: true });
    await rename(draft, this.#path);
  }
}
