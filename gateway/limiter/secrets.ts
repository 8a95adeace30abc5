import { addressDigits, isWithin } from './networks.ts';

/** A key has up to 20 secrets. They share its pair of buckets. */
export const MAX_SECRETS = 20;

export const SCOPES = ['read', 'write'] as const;
export type Scope = (typeof SCOPES)[number];

/** What a secret is bound to: operations, and the networks of its requests. */
export interface Bounds {
  readonly scope: readonly Scope[];
  /** In the format of networks.ts. If empty, any network is allowed. */
  readonly networks: readonly string[];
}

/** A secret of a key. Times are Unix time in microseconds. */
export interface Secret extends Bounds {
  /** Public; may appear in logs. */
  readonly id: string;
  /** SHA-256 of the secret, in hex. */
  readonly digest: string;
  readonly name: string;
  readonly createdAt: number;
  readonly expiresAt?: number | undefined;
}

/** What ends a key, whatever the secret. */
export interface Validity {
  readonly expiresAt?: number | undefined;
  readonly disabled?: boolean | undefined;
}

/** What a request needs from a key, and the address that it comes from. */
export interface Use {
  /** Undefined if any secret will do. */
  readonly scope: Scope | undefined;
  readonly address: string;
}

/** For a use without a scope and an address: it matches secrets that are not bound to a network. */
export const NO_USE: Use = { scope: undefined, address: '' };

export function isFromThere({ networks }: Bounds, { address }: Use): boolean {
  if (networks.length === 0) return true;
  const digits = addressDigits(address);
  return networks.some((network) => isWithin(network, digits));
}

export const allows = ({ scope }: Bounds, use: Use): boolean => use.scope === undefined || scope.includes(use.scope);

export const secretOf = ({ secrets }: { readonly secrets: readonly Secret[] }, digest: string): Secret | undefined =>
  secrets.find((secret) => secret.digest === digest);

/** Why a secret does not open its key; undefined if it does. @param use undefined for a use that began earlier */
export function unauthorized(
  key: Validity,
  secret: Pick<Secret, 'expiresAt'> & Bounds,
  now: number,
  use?: Use,
): 'disabled' | 'expired' | 'elsewhere' | undefined {
  if (secret.expiresAt !== undefined && secret.expiresAt <= now) return 'expired';
  if (use !== undefined && !isFromThere(secret, use)) return 'elsewhere';
  return inactiveReason(key, now);
}

/** Why a key is not valid, whatever the secret. The order is that of the checks in a decision. */
export function inactiveReason({ disabled, expiresAt }: Validity, now: number): 'disabled' | 'expired' | undefined {
  if (disabled) return 'disabled';
  return expiresAt !== undefined && expiresAt <= now ? 'expired' : undefined;
}

export const isBound = ({ scope, networks }: Bounds): boolean => scope.length < SCOPES.length || networks.length > 0;

/** When the credential ends: with the key or with its secret, whichever is first. 0 for never. */
export function endsAt({ expiresAt = Infinity }: Validity, secret: Secret): number {
  const end = Math.min(expiresAt, secret.expiresAt ?? Infinity);
  return end === Infinity ? 0 : end;
}

/** Reads the bounds written by decide.lua: `read;4:0a/8,4:c0a8/16`. @returns undefined for an unbound secret */
export function readBounds(text: string): Bounds | undefined {
  if (text === '-') return undefined;
  const [scope = '', networks = ''] = text.split(';');
  return { scope: readScope(scope), networks: readNetworks(networks) };
}

export const readScope = (text: string): Scope[] => SCOPES.filter((scope) => text.split(',').includes(scope));
export const readNetworks = (text: string): string[] => (text === '-' || text === '' ? [] : text.split(','));
