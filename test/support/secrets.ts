import { SCOPES, type Secret } from '../../gateway/limiter/credential.ts';

/** A key's secret, for writing into a store without the admin API. */
export const secretWith = (digest: string, about: Partial<Secret> = {}): Secret => ({
  id: `s${digest.replaceAll(/\W|_/g, '').slice(0, 7)}`,
  name: 'test',
  scope: SCOPES,
  networks: [],
  createdAt: 0,
  ...about,
  digest,
});
