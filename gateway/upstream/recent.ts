const FORGET_AFTER_MS = 10_000;
const MAX_CLIENTS = 1_000;

/** Clients of whom something was recently noted. The oldest are forgotten first. */
export class RecentClients {
  readonly #until = new Map<string, number>();

  has(client: string, now: number): boolean {
    return this.#until.size > 0 && (this.#until.get(client) ?? 0) > now;
  }

  add(client: string, now: number): void {
    // Deleting and inserting moves the entry to the end, so the oldest is first.
    this.#until.delete(client);
    this.#until.set(client, now + FORGET_AFTER_MS);
    for (const [oldest, until] of this.#until) {
      if (until > now && this.#until.size <= MAX_CLIENTS) break;
      this.#until.delete(oldest);
    }
  }
}
