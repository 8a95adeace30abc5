import { createHash } from 'node:crypto';
import { type Fields, recordFields } from '../key-hash.ts';

/**
 * Each write of a gateway leaves a digest of the record in the hash, so an edit by hand can be recognized. A decision
 * writes no field of the record and does not read the digest. Bans are no part of it: decisions set them too.
 */
export const DIGEST = 'record_digest';
const CHARACTERS = 16;

type Hash = Readonly<Record<string, string>>;

/** The field to write with these changes of a hash. */
export function withDigest(changes: Fields, before: Hash = {}): Fields {
  const after = Object.entries({ ...before, ...changes }).filter(
    (field): field is [string, string] => field[1] !== undefined,
  );
  return { ...changes, [DIGEST]: digestOf(Object.fromEntries(after)) };
}

/** True for a hash without a digest: a gateway of an older version has written it. */
export const fitsDigest = (hash: Hash): boolean => hash[DIGEST] === undefined || hash[DIGEST] === digestOf(hash);

function digestOf(hash: Hash): string {
  const fields = Object.entries(recordFields(hash)).filter(([, text]) => text !== undefined);
  const text = JSON.stringify(fields.sort(([a], [b]) => (a < b ? -1 : 1)));
  return createHash('sha256').update(text).digest('hex').slice(0, CHARACTERS);
}
