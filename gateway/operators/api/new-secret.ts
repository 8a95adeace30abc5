import { createSecretId, SCOPES, type Secret } from '../../limiter/credential.ts';

/** Creates the first or a later secret of a key. */
export const makeSecret = (
  digest: string,
  createdAt: number,
  { name = 'first', scope = SCOPES, networks = [], expiresAt }: AboutSecret = {},
): Secret => ({ id: createSecretId(), digest, createdAt, name, scope, networks, expiresAt });

type AboutSecret = { readonly [member in 'name' | 'scope' | 'networks' | 'expiresAt']?: Secret[member] | undefined };
