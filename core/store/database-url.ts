import { Unavailable } from '../../shared/domain-errors.ts';

/** How long to wait before a refused URL is tried again. */
const REFUSED_MS = 1_000;

/**
 * The URL of a database whose password can change while the core runs. The password changes in two places, the database
 * and the URL, one after the other. In between, the database refuses either the current or the previous URL and accepts
 * the other.
 */
export class DatabaseUrl {
  readonly #read: () => string;
  #lastAccepted: string | undefined;
  #lastRefused: { readonly url: string; readonly at: number } | undefined;

  /** @param read returns the current URL */
  constructor(read: () => string) {
    this.#read = read;
  }

  /** The current URL or, if that was just refused, the last one that was accepted. */
  forNewConnection(): string {
    const url = this.#read();
    const { url: refused, at = Number.NEGATIVE_INFINITY } = this.#lastRefused ?? {};
    const isRefused = url === refused && performance.now() - at < REFUSED_MS;
    return (isRefused ? this.#lastAccepted : undefined) ?? url;
  }

  accepted(url: string): void {
    this.#lastAccepted = url;
  }

  /**
   * Notes a refused URL. Only the current URL counts: if the fallback was refused, the current URL is tried next.
   *
   * @returns whether the next attempt uses another URL
   */
  refused(url: string): boolean {
    this.#lastRefused = url === this.#read() ? { url, at: performance.now() } : undefined;
    return this.forNewConnection() !== url;
  }
}

/** What the system's error codes mean for a connection to PostgreSQL, which has its own messages. */
const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing is listening there',
  ENOTFOUND: 'there is no host with this name',
  EAI_AGAIN: 'the host name cannot be resolved',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the network cannot be reached',
  ETIMEDOUT: 'there is no answer',
  ECONNRESET: 'the connection was closed',
  ENOENT: 'there is no such socket',
};

/**
 * Explains why the core cannot use its database at the start. The explanation names the setting and leaves out the
 * password.
 */
export function explainStart(url: string, fault: unknown): string {
  const cause = fault instanceof Unavailable && fault.cause !== undefined ? fault.cause : fault;
  const { code = '', message = '' } = cause as NodeJS.ErrnoException;
  const words = url.startsWith('sqlite:') ? undefined : WORDS[code];
  const reason = words ?? (message || code || String(cause)).replace(/\.$/, '');
  return `DATABASE_URL: ${placeOf(url)} cannot be used: ${reason}.`;
}

function placeOf(url: string): string {
  if (url.startsWith('sqlite:')) return `the SQLite file ${url.slice('sqlite:'.length)}`;
  if (!URL.canParse(url)) return 'PostgreSQL';
  const { hostname, port, pathname } = new URL(url);
  return `PostgreSQL at ${hostname || 'localhost'}:${port || 5432}, database ${pathname.slice(1) || '(default)'},`;
}
