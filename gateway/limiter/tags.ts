/**
 * Key tags, by which operators group customers. They are written as `customer=acme, env=prod`, sorted by name, in
 * the stores, the audit log, files and on the command line.
 */

export type Tags = Readonly<Record<string, string>>;

/** New values of single tags; null removes a tag. */
export type TagChanges = Readonly<Record<string, string | null>>;

export const MAX_TAGS = 10;

const NAME = '[A-Za-z0-9][A-Za-z0-9_.-]{0,63}';
/** Matches the start of the next tag in a string. */
const NEXT = `,\\s*${NAME}[=:]`;

export const TAG_NAME = new RegExp(`^${NAME}$`);
export const TAG_NAME_RULE = 'at most 64 letters, digits, _, . and -, and begins with a letter or digit';
/** A value must not look like the next tag, so that lists of tags and filters can be parsed. */
export const TAG_VALUE = new RegExp(`^(?=[^\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}]{1,64}$)(?!.*${NEXT})\\S(?:.*\\S)?$`, 'u');
export const TAG_VALUE_RULE =
  '1 to 64 characters, without control characters, leading or trailing spaces, or “, name=”';
const BETWEEN = new RegExp(`(?=${NEXT}),\\s*`);

/** Undefined for an invalid string. */
export function readTags(text: string): Tags | undefined {
  const pairs = text.trim() === '' ? [] : splitTags(text);
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

/** The changes that turn some tags into others. */
export const tagChangesTo = (after: Tags, before: Tags = {}): TagChanges =>
  Object.fromEntries(
    Object.keys({ ...before, ...after })
      .map((name) => [name, valueOfTag(after, name) ?? null] as const)
      .filter(([name, value]) => value !== (valueOfTag(before, name) ?? null)),
  );

/** The tags in a string, with undefined in place of each invalid one. */
export const splitTags = (text: string): ReturnType<typeof splitTag>[] =>
  text.split(BETWEEN).map((pair) => splitTag(pair.trim()));

/** Splits `customer=acme` or, as in queries, `customer:acme`. Undefined if the string is not a tag. */
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
