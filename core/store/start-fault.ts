import { Unavailable } from '../../shared/domain-errors.ts';

/**
 * Explains why the core cannot use its database at the start. The explanation names the setting and leaves out the
 * password.
 */

/** What the system's error codes mean. PostgreSQL and SQLite have messages of their own. */
const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there',
  ENOTFOUND: 'there is no host of this name',
  EAI_AGAIN: 'the name of the host cannot be resolved',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the network cannot be reached',
  ETIMEDOUT: 'there is no answer',
  ECONNRESET: 'the connection was closed',
  ENOENT: 'there is no such socket',
};

export function explainStart(url: string, fault: unknown): string {
  const cause = fault instanceof Unavailable && fault.cause !== undefined ? fault.cause : fault;
  return `DATABASE_URL: ${placeOf(url)} cannot be used: ${reasonOf(cause)}.`;
}

function placeOf(url: string): string {
  if (url.startsWith('sqlite:')) return `the SQLite file ${url.slice('sqlite:'.length)}`;
  if (!URL.canParse(url)) return 'PostgreSQL';
  const { hostname, port, pathname } = new URL(url);
  return `PostgreSQL at ${hostname || 'localhost'}:${port || 5432}, database ${pathname.slice(1) || 'by default'},`;
}

function reasonOf(cause: unknown): string {
  const { code = '', message = '' } = cause as NodeJS.ErrnoException;
  return WORDS[code] ?? (message || code || String(cause)).replace(/\.$/, '');
}
