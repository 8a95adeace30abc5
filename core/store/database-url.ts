/** How long a refused URL is not tried again. */
const REFUSED_MS = 1_000;

/**
 * The URL of a database whose password can change while the core runs. It changes in two places, the database and the
 * URL, one after the other. In between, the database refuses either the present or the last URL and accepts the other.
 */
export class DatabaseUrl {
  readonly #read: () => string;
  #lastAccepted: string | undefined;
  #lastRefused: { readonly url: string; readonly at: number } | undefined;

  /** @param read returns the present URL */
  constructor(read: () => string) {
    this.#read = read;
  }

  /** The present URL or, if that was just refused, the last one that was accepted. */
  forNewConnection(): string {
    const url = this.#read();
    const { url: refused, at = Number.NEGATIVE_INFINITY } = this.#lastRefused ?? {};
    const isRefused = url === refused && performance.now() - at < REFUSED_MS;
    return (isRefused ? this.#lastAccepted : undefined) ?? url;
  }

  accepted(url: string): void {
    this.#lastAccepted = url;
  }

  /** Notes a refused URL. If it is the last accepted one, the present one is tried at once. */
  refused(url: string): void {
    this.#lastRefused = url === this.#read() ? { url, at: performance.now() } : undefined;
  }

  get hasOther(): boolean {
    return this.#lastAccepted !== undefined && this.#lastAccepted !== this.#read();
  }
}
