/**
 * What to look for in a text that somebody pasted. The command line and the console's page drop secrets by it, so it
 * imports nothing.
 */

export interface SearchText {
  /** What may be sent; empty if there is nothing to look for. */
  readonly text: string;
  /** Whether a secret was dropped. */
  readonly hadSecret: boolean;
}

/** A key, or what is left of it in a log: the id, and the rest. */
const KEY = /as_([0-9A-Za-z]{12})(?![0-9A-Za-z])(_[0-9A-Za-z]*)?/;
/** The secret of a key with its check, without its beginning. */
const BARE_SECRET = /(?<![0-9A-Za-z])[0-9A-Za-z]{38}(?![0-9A-Za-z])/;
/** In a log line, whose other members are of no use. */
const KEY_ID = /"keyId":"([0-9A-Za-z]{12})"/;

/** The text of a search. Of a key, only its public id is left; of a log line, the id of its key. */
export function searchText(pasted: string): SearchText {
  const [, id, rest = ''] = KEY.exec(pasted) ?? [];
  const text = pasted.trim();
  if (id !== undefined) return { text: id, hadSecret: rest.length > 1 };
  if (BARE_SECRET.test(text)) return { text: '', hadSecret: true };
  return { text: KEY_ID.exec(text)?.[1] ?? text, hadSecret: false };
}
