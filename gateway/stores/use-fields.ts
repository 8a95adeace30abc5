import { SECOND } from '../limiter/bucket.ts';
import type { Secret } from '../limiter/credential.ts';
import type { KeyState, Mark } from '../limiter/key-record.ts';

/** The fields of a key that record when the key and its secrets were used. */

/** `29918880:120:4` for each mark. */
export const writeMarks = (marks: readonly Mark[]): string | undefined =>
  marks.map(({ at, admitted, refused }) => `${at}:${admitted}:${refused}`).join(' ') || undefined;

/** A single mark is not stored, but follows from `asOf`. Skips malformed marks, for example after an edit by hand. */
export function readMarks(text: string | undefined, asOf: number | undefined, unit: number): Mark[] {
  if (text === undefined) return asOf === undefined ? [] : [{ at: Math.floor(asOf / unit), admitted: 0, refused: 0 }];
  const marks = text.matchAll(/(?<!\S)(\d{1,8}):(\d{1,16}):(\d{1,16})(?!\S)/g);
  return [...marks].map(([, ...numbers]) => {
    const [at = 0, admitted = 0, refused = 0] = numbers.map(Number);
    return { at, admitted, refused };
  });
}

/** `k3JtQz81:1795132800` for each secret that was used. */
export const writeUsed = (used: KeyState['used']): string | undefined =>
  Object.entries(used)
    .map(([id, at]) => `${id}:${at / SECOND}`)
    .join(' ') || undefined;

/** The last uses, without removed secrets. */
export const withoutSecrets = (used: KeyState['used'], gone: readonly Secret[]): KeyState['used'] =>
  Object.fromEntries(Object.entries(used).filter(([id]) => !gone.some((secret) => secret.id === id)));

/** Skips malformed entries. */
export const readUsed = (text = ''): KeyState['used'] =>
  Object.fromEntries(
    [...text.matchAll(/(?<!\S)(\w+):(\d{1,10})(?!\S)/g)].map(([, id, seconds]) => [id, Number(seconds) * SECOND]),
  );
