import { hash as digestOf } from 'node:crypto';
import { readNetworks, readScope, SCOPES, type Secret } from '../limiter/credential.ts';
import { MAX_KEY_NAME_LENGTH } from '../limiter/key-record.ts';
import { describeNetwork, isNetwork, parseNetwork } from '../limiter/networks.ts';
import type { Fields } from './storage.ts';
import { readTime, writeTime } from './stored-time.ts';

/** The secrets among the fields of a key. */

/** Each secret has a field named by its digest, so that a decision reads it with everything else. */
export const SECRET = 'secret:';
/** The number of secrets. It reveals concurrent changes. */
export const SECRETS = 'secrets';

/** A secret that was replaced: the rotation has set when it expires, and its own expiry is kept. */
export interface StoredSecret extends Secret {
  readonly own?: Pick<Secret, 'expiresAt'> | undefined;
}

/** When a secret expires, or would if it had not been replaced. */
export const ownExpiry = ({ expiresAt, own = { expiresAt } }: StoredSecret): number | undefined => own.expiresAt;

export const MAX_NETWORKS = 20;

/** Whether an operator could have given a secret this field. Decisions use others too, as far as they can. */
export function isSecret(digest: string, text: string): boolean {
  const [, scope = '', networks = '', end = '-'] = /^\w{1,32} \S+ (\S+) (\S+) [\d.]*(?:\/(\S+))? ?/.exec(text) ?? [];
  const all = networks === '-' ? [] : networks.split(',');
  return (
    /^[\w-]{43}$/.test(digest) &&
    isName(readSecret(digest, text)?.name) &&
    scope.split(',').every((one) => SCOPES.some((known) => known === one)) &&
    all.length <= MAX_NETWORKS &&
    all.every(isGivenNetwork) &&
    (end === '-' || readTime(end) !== undefined)
  );
}

const isGivenNetwork = (text: string): boolean => {
  const most = text.startsWith('4:') ? 32 : 128;
  return isNetwork(text) && Number(text.split('/')[1]) <= most && parseNetwork(describeNetwork(text)) === text;
};

/** Of a key or a secret. */
export const isName = (text: string | undefined): boolean =>
  text !== undefined && text.length <= MAX_KEY_NAME_LENGTH && !/\p{Cc}/u.test(text);

export const secretsDigest = (hash: Fields): string => {
  const secrets = Object.entries(hash).filter(([field]) => field.startsWith(SECRET) || field === SECRETS);
  return digestOf('sha256', JSON.stringify(secrets.sort(([a], [b]) => (a < b ? -1 : 1))), 'base64url').slice(0, 12);
};

/** In decide.lua's format: id, end, scope, networks, beginning (after `/`, its own expiry if it was replaced), name. */
export function writeSecret({ id, expiresAt, scope, networks, createdAt, name, own }: StoredSecret): string {
  const created = `${writeTime(createdAt)}${own === undefined ? '' : `/${writeTime(own.expiresAt) ?? '-'}`}`;
  return [id, writeTime(expiresAt) ?? '-', scope.join(','), networks.join(',') || '-', created, name].join(' ');
}

function readSecret(digest: string, text: string): StoredSecret | undefined {
  const [, id, end, scope, networks, created, ownEnd, name] =
    /^(\w+) (\S+) (\S+) (\S+) ([^\s/]*)(\/\S*)? ?(.*)$/s.exec(text) ?? [];
  const expiresAt = readTime(end);
  if (id === undefined || (expiresAt === undefined && end !== '-')) return undefined;
  const bounds = { scope: readScope(scope as string), networks: readNetworks(networks as string) };
  const own = ownEnd === undefined ? undefined : { expiresAt: readTime(ownEnd.slice(1)) };
  return { id, digest, name: name as string, createdAt: readTime(created) ?? 0, expiresAt, own, ...bounds };
}

export function readSecrets(hash: Fields): Secret[] {
  const fields = Object.entries(hash).filter(([field]) => field.startsWith(SECRET));
  const secrets = fields.map(([field, text]) => readSecret(field.slice(SECRET.length), text));
  return secrets.filter((secret) => secret !== undefined).sort((a, b) => a.createdAt - b.createdAt);
}
