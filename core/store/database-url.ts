/** How long a URL that was refused is not tried again. */
const REFUSED_MS = 1_000;

/**
 * The URL of a database whose password is changed while the core runs. A password is changed in two places, one after
 * the other. In between the database refuses one of the two, and the other one still works.
 */
export class DatabaseUrl {
  readonly #read: () => string;
  #lastAccepted: string | undefined;
  #lastRefused: { readonly url: string; readonly at: number } | undefined;

  /** @param read the URL at present */
  constructor(read: () => string) {
    this.#read = read;
  }

  /** The present URL, or if it was just refused, the last one that was accepted. */
  forNewConnection(): string {
    const url = this.#read();
    const { url: refused, at = Number.NEGATIVE_INFINITY } = this.#lastRefused ?? {};
    const isRefused = url === refused && performance.now() - at < REFUSED_MS;
    return (isRefused ? this.#lastAccepted : undefined) ?? url;
  }

  accepted(url: string): void {
    this.#lastAccepted = url;
  }

  /** If the last accepted one is refused, the present one is tried at once. */
  refused(url: string): void {
    this.#lastRefused = url === this.#read() ? { url, at: performance.now() } : undefined;
  }

  /** Whether there is another URL to try than the one that was refused. */
  get hasOther(): boolean {
    return this.#lastAccepted !== undefined && this.#lastAccepted !== this.#read();
  }
}
