import { hash as digestOf } from 'node:crypto';
import { readNetworks, readScope, SCOPES, type Secret, type UnreadablePart } from '../limiter/credential.ts';
import { describeNetwork, isNetwork, parseNetwork } from '../limiter/networks.ts';
import { isName } from './line.ts';
import type { Fields } from './storage.ts';
import { readTime, writeTime } from './stored-time.ts';

/** The secrets among the fields of a key. */

/** Each secret has a field named by its digest, so that a decision reads it with everything else. */
export const SECRET = 'secret:';

/** A secret that was replaced. The rotation has set when it expires; `own` keeps its own expiry. */
export interface StoredSecret extends Secret {
  readonly own?: Pick<Secret, 'expiresAt'> | undefined;
}

/** When a secret expires, or would have expired without the rotation. */
export const ownExpiry = ({ expiresAt, own = { expiresAt } }: StoredSecret): number | undefined => own.expiresAt;

export const MAX_NETWORKS = 20;

/** Whether a secret allows less than before, and nothing more. */
export function isNarrower(secret: Secret, before: Secret | undefined): boolean {
  if (before === undefined) return false;
  const ends = (secret.expiresAt ?? Infinity) - (before.expiresAt ?? Infinity) || 0;
  const isBound = secret.networks.length > 0 && before.networks.length === 0;
  const isWider =
    ends > 0 ||
    secret.scope.some((scope) => !before.scope.includes(scope)) ||
    (!isBound && secret.networks.some((network) => !before.networks.includes(network))) ||
    (secret.networks.length === 0 && before.networks.length > 0);
  const isLess = ends < 0 || secret.scope.length < before.scope.length;
  return !isWider && (isLess || isBound || secret.networks.length < before.networks.length);
}

const isGivenNetwork = (text: string): boolean => {
  const most = text.startsWith('4:') ? 32 : 128;
  return isNetwork(text) && Number(text.split('/')[1]) <= most && parseNetwork(describeNetwork(text)) === text;
};

export const secretsDigest = (hash: Fields): string => {
  const secrets = Object.entries(hash).filter(([field]) => field.startsWith(SECRET));
  return digestOf('sha256', JSON.stringify(secrets.sort(([a], [b]) => (a < b ? -1 : 1))), 'base64url').slice(0, 8);
};

/**
 * In decide.lua's format: id, expiry, scope, networks, creation (followed by `/` and the own expiry of a replaced
 * secret), name. The creation is `-` for a secret as old as its key: the fewer bytes, the more keys keep Redis' compact
 * encoding.
 * @param keyCreatedAt the key's field `created_at`
 */
export function writeSecret(
  { id, expiresAt, scope, networks, createdAt, name, own }: StoredSecret,
  keyCreatedAt: string | undefined,
): string {
  const began = writeTime(createdAt);
  const created = `${began === keyCreatedAt ? '-' : began}${own === undefined ? '' : `/${writeTime(own.expiresAt) ?? '-'}`}`;
  return [id, writeTime(expiresAt) ?? '-', scope.join(','), networks.join(',') || '-', created, name].join(' ');
}

function readSecret(digest: string, text: string, keyCreatedAt: string | undefined): StoredSecret {
  const [, id = shortOf(digest + text), end = '', scope = '', networks = '', created = '', ownEnd, name = ''] =
    /^(\w{1,32}) (\S+) (\S+) (\S+) ([^\s/]*)(\/\S*)? ?(.*)$/s.exec(text) ?? [];
  const expiresAt = readTime(end);
  const bounds = { scope: readScope(scope), networks: readNetworks(networks) };
  const ownTime = readTime(ownEnd?.slice(1));
  const own = ownTime === undefined && ownEnd !== '/-' ? undefined : { expiresAt: ownTime };
  const isGood: Record<UnreadablePart, boolean> = {
    digest: /^[\w-]{43}$/.test(digest),
    name: isName(name),
    scope: scope.split(',').every((one) => SCOPES.some((known) => known === one)),
    networks: networks !== '' && bounds.networks.length <= MAX_NETWORKS && bounds.networks.every(isGivenNetwork),
    expiresAt: end === '-' || expiresAt !== undefined,
    createdAt: /^(?:-|[\d.]*)$/.test(created) && (own === undefined) === (ownEnd === undefined),
  };
  const bad = (Object.keys(isGood) as UnreadablePart[]).filter((part) => !isGood[part]);
  const unreadable = bad.length === 0 ? undefined : bad;
  const createdAt = readTime(created === '-' ? keyCreatedAt : created) ?? 0;
  return { id, digest, name, createdAt, expiresAt, own, unreadable, ...bounds };
}

/** Makes an id for a secret without one. */
const shortOf = (text: string): string => digestOf('sha256', text, 'hex').slice(0, 8);

/** All secrets among the fields, including those that operators could not have created. */
export function readSecrets(hash: Fields): StoredSecret[] {
  const fields = Object.entries(hash).filter(([field]) => field.startsWith(SECRET));
  const secrets = fields.map(([field, text]) => readSecret(field.slice(SECRET.length), text, hash.created_at));
  return secrets.sort((a, b) => a.createdAt - b.createdAt);
}
