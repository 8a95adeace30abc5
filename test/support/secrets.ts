import { SCOPES, type Secret } from '../../gateway/limiter/credential.ts';

/** A secret of a key that is put into a store past the admin API. */
export const secretWith = (digest: string, about: Partial<Secret> = {}): Secret => ({
  id: `s${digest.replaceAll(/\W|_/g, '').slice(0, 7)}`,
  name: 'test',
  scope: SCOPES,
  networks: [],
  createdAt: 0,
  ...about,
  digest,
});
