/** What people can type to find a key: its id, the whole key, the id of a request, or a part of its name. */

const WHOLE_KEY = /as_([0-9A-Za-z]{12})(?:_[0-9A-Za-z]*|…)?/;

/**
 * Removes the secret of a key from a text. Only the id of a whole key is left, even within other text such as a header,
 * so that the secret never leaves the browser.
 */
export function withoutSecret(text: string): string {
  return WHOLE_KEY.exec(text)?.[1] ?? text.trim();
}
