/**
 * Tags of keys: what operators sort customers by. As one text they are `customer=acme, env=prod`, sorted by name: in the
 * stores, in the audit log, on the command line and in files.
 */

export type Tags = Readonly<Record<string, string>>;

export const MAX_TAGS = 10;

/** No separator of a text or of a filter is among these characters, so both can be read back. */
export const TAG_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;
export const TAG_NAME_RULE = 'letters, digits, _ . and -, at most 64, and begins with a letter or digit';
export const TAG_VALUE = /^(?! )[\p{L}\p{M}\p{N} _.:/=+@-]{1,64}(?<! )$/u;
export const TAG_VALUE_RULE = 'letters, digits, spaces and _ . : / = + @ -, at most 64, and no space at its ends';

/** Undefined for a text that is not valid. */
export function readTags(text: string): Tags | undefined {
  const pairs = text.trim() === '' ? [] : text.split(',').map((pair) => splitTag(pair.trim()));
  if (pairs.length > MAX_TAGS || pairs.includes(undefined)) return undefined;
  const tags = Object.fromEntries(pairs as [string, string][]);
  return Object.keys(tags).length === pairs.length ? tags : undefined;
}

/** Undefined for no tags. */
export const writeTags = (tags: Tags = {}): string | undefined =>
  Object.entries(tags)
    .map(([name, value]) => `${name}=${value}`)
    .sort()
    .join(', ') || undefined;

/** `customer=acme` or, as queries have it, `customer:acme`. Undefined if it is no tag. */
export function splitTag(text: string): [name: string, value: string] | undefined {
  const at = text.search(/[=:]/);
  const [name, value] = [text.slice(0, Math.max(0, at)), text.slice(at + 1)];
  return TAG_NAME.test(name) && TAG_VALUE.test(value) ? [name, value] : undefined;
}

/** The value of a tag; undefined for a key without it. A name such as `constructor` is a tag like any other. */
export const valueOfTag = (tags: Tags | undefined, name: string): string | undefined =>
  tags !== undefined && Object.hasOwn(tags, name) ? tags[name] : undefined;

/** Whether a key has all of these tags. */
export const hasTags = (tags: Tags | undefined, wanted: readonly (readonly [name: string, value: string])[]): boolean =>
  wanted.every(([name, value]) => valueOfTag(tags, name) === value);
