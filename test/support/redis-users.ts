import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { cleanUp } from './clean-up.ts';
import { ROOT } from './process.ts';
import { type Directives, type RedisServer, startRedisServer } from './redis.ts';

/** The rules of each user in deploy/redis/users.acl, by name. */
export const USERS: ReadonlyMap<string, string[]> = new Map(
  readFileSync(join(ROOT, 'deploy/redis/users.acl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' '))
    .map(([, name = '', ...rules]) => [name, rules]),
);

export const passwordOf = (user: string): string => `canary-of-${user}`;

/** For the test itself, which may do everything. */
const ROOT_USER = 'root';

/** Gives a server the users that the project ships, each with a password; this connection stays allowed everything. */
export async function installUsers(redis: Redis): Promise<void> {
  await redis.acl('SETUSER', ROOT_USER, 'on', `>${passwordOf(ROOT_USER)}`, '~*', '&*', '+@all');
  await redis.auth(ROOT_USER, passwordOf(ROOT_USER));
  Object.assign(redis.options, { username: ROOT_USER, password: passwordOf(ROOT_USER) });
  for (const [user, rules] of USERS)
    await redis.acl('SETUSER', user, 'reset', ...rules, ...(user === 'default' ? [] : [`>${passwordOf(user)}`]));
  await redis.acl('LOG', 'RESET');
}

/** A server with these users, and a connection of the test's own, which may do everything. */
export async function startRedisWithUsers(directives?: Directives): Promise<{ server: RedisServer; root: Redis }> {
  const server = await startRedisServer(directives);
  cleanUp(server.stop);
  const root = new Redis(server.url);
  root.on('error', () => {});
  cleanUp(() => root.disconnect());
  await installUsers(root);
  return { server, root };
}

/** What users were refused since then. */
export async function refusals(redis: Redis): Promise<string[]> {
  const log = (await redis.acl('LOG')) as unknown[][];
  return log.map((entry) => entry.join(' '));
}

/** A URL with a user of the project's. */
export function urlOf(user: string, url: string): string {
  const whole = new URL(url);
  whole.username = user;
  whole.password = passwordOf(user);
  return whole.href;
}
