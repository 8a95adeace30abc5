import { setImmediate as nextTurn } from 'node:timers/promises';
import { type FieldChanges, NotMade } from '../storage.ts';

/** The process that decides. The storage must handle its answers in the order in which they were given. */
export interface Owner {
  /** Forgets a key, and returns what decisions have changed of it since the last release or flush. */
  release(id: string): Promise<FieldChanges | undefined>;
  /** Returns all that decisions have changed, and goes on deciding. */
  flush(): Promise<Iterable<readonly [id: string, changes: FieldChanges]>>;
}

/** A key that is being changed. Its owner was asked to release it and must not load it yet. */
interface Held {
  users: number;
  readonly released: Promise<void>;
  readonly freed: PromiseWithResolvers<void>;
}

/** Changes by decisions that are not yet in the database. */
export class States {
  readonly #owner: Owner | undefined;
  readonly #unsaved = new Map<string, FieldChanges>();
  readonly #held = new Map<string, Held>();

  constructor(owner: Owner | undefined) {
    this.#owner = owner;
  }

  get ids(): string[] {
    return [...this.#unsaved.keys()];
  }

  of(id: string): FieldChanges | undefined {
    return this.#unsaved.get(id);
  }

  keep(id: string, changes: FieldChanges): void {
    this.#unsaved.set(id, { ...this.#unsaved.get(id), ...changes });
  }

  forget(ids: readonly string[]): void {
    for (const id of ids) this.#unsaved.delete(id);
  }

  async takeAll(): Promise<void> {
    for (const [id, changes] of (await this.#owner?.flush()) ?? []) this.keep(id, changes);
  }

  /** Runs a change of keys. Nobody loads these keys until it is settled. */
  async whileHeld<T>(ids: readonly string[], change: () => Promise<T>): Promise<T> {
    const { release } = this.#owner ?? {};
    if (release === undefined || ids.length === 0) return await change();
    const held = ids.map((id) => this.#hold(id));
    try {
      await Promise.all(held.map(({ released }) => released));
      return await change();
    } finally {
      for (const id of ids) this.#free(id);
    }
  }

  async untilFree(id: string): Promise<void> {
    for (let held = this.#held.get(id); held !== undefined; held = this.#held.get(id)) await held.freed.promise;
  }

  #hold(id: string): Held {
    const held = this.#held.get(id) ?? { users: 0, released: this.#release(id), freed: Promise.withResolvers() };
    held.users += 1;
    this.#held.set(id, held);
    return held;
  }

  #free(id: string): void {
    const held = this.#held.get(id) as Held;
    held.users -= 1;
    if (held.users > 0) return;
    this.#held.delete(id);
    held.freed.resolve();
  }

  /** Waits a turn first, so that a key loaded in this turn reaches the owner before the request to release it. */
  async #release(id: string): Promise<void> {
    await nextTurn();
    const changes = await this.#owner?.release(id).catch((fault: unknown) => {
      throw new NotMade('The process that decides did not release the key.', fault);
    });
    if (changes !== undefined) this.keep(id, changes);
  }
}
