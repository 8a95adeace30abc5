/**
 * Extracts what to look for from a text that somebody pasted. The command line and the console use it to drop secrets,
 * so it imports nothing.
 */

export interface SearchText {
  /** The text to send; empty if there is nothing to look for. */
  readonly text: string;
  /** Whether a secret was dropped. */
  readonly hadSecret: boolean;
}

/** A key, or its remains in a log: the id, and the rest. */
const KEY = /as_([0-9A-Za-z]{12})(?![0-9A-Za-z])(_[0-9A-Za-z]*)?/;
/** The secret of a key with its check, but without the id. */
const BARE_SECRET = /(?<![0-9A-Za-z])[0-9A-Za-z]{38}(?![0-9A-Za-z])/;
/** A key id in a log line, whose other members are not needed. */
const KEY_ID = /"keyId":"([0-9A-Za-z]{12})"/;

/** Reduces a key to its public id, and a log line to the id of its key. */
export function searchText(pasted: string): SearchText {
  const [, id, rest = ''] = KEY.exec(pasted) ?? [];
  const text = pasted.trim();
  if (id !== undefined) return { text: id, hadSecret: rest.length > 1 };
  if (BARE_SECRET.test(text)) return { text: '', hadSecret: true };
  return { text: KEY_ID.exec(text)?.[1] ?? text, hadSecret: false };
}
