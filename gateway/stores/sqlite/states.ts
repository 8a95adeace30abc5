import { setImmediate as nextTurn } from 'node:timers/promises';
import { type FieldChanges, NotMade } from '../storage.ts';

/** The process that decides. Its answers must be passed on in the order in which it gave them. */
export interface Owner {
  /** Forgets a key, and hands over what decisions changed of it since they were last handed over. */
  release(id: string): Promise<FieldChanges | undefined>;
  /** Hands over all that decisions changed. It goes on deciding. */
  flush(): Promise<Iterable<readonly [id: string, changes: FieldChanges]>>;
}

/** A key that is being changed: its owner was asked to release it, and must not load it yet. */
interface Held {
  users: number;
  readonly released: Promise<void>;
  readonly freed: PromiseWithResolvers<void>;
}

/** What decisions changed of keys: taken over from the process that decides, and not yet in the database. */
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

  /** Runs a change of keys, which nobody loads until it is settled. */
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

  /** What was loaded in this turn is sent before: the owner must have it when it is asked to forget it. */
  async #release(id: string): Promise<void> {
    await nextTurn();
    const changes = await this.#owner?.release(id).catch((fault: unknown) => {
      throw new NotMade('The process that decides did not release the key.', fault);
    });
    if (changes !== undefined) this.keep(id, changes);
  }
}
