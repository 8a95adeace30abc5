import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { ROOT } from './process.ts';
import type { Directives, RedisServer } from './redis.ts';
import { connectionTo, ownRedis } from './redis-database.ts';

/** The rules of each user in deploy/redis/users.acl, by name. */
export const USERS: ReadonlyMap<string, string[]> = new Map(
  readFileSync(join(ROOT, 'deploy/redis/users.acl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' '))
    .map(([, name = '', ...rules]) => [name, rules]),
);

export const passwordOf = (user: string): string => `canary-of-${user}`;

/** The user of the test itself, with all permissions. */
const ROOT_USER = 'root';

/** Adds the shipped users to a server, each with a password. The given connection keeps all permissions. */
export async function installUsers(redis: Redis): Promise<void> {
  await redis.acl('SETUSER', ROOT_USER, 'on', `>${passwordOf(ROOT_USER)}`, '~*', '&*', '+@all');
  await redis.auth(ROOT_USER, passwordOf(ROOT_USER));
  Object.assign(redis.options, { username: ROOT_USER, password: passwordOf(ROOT_USER) });
  for (const [user, rules] of USERS)
    await redis.acl('SETUSER', user, 'reset', ...rules, ...(user === 'default' ? [] : [`>${passwordOf(user)}`]));
  await redis.acl('LOG', 'RESET');
}

/** Starts a server with these users, and opens a connection with all permissions. */
export async function startRedisWithUsers(directives?: Directives): Promise<{ server: RedisServer; root: Redis }> {
  const server = await ownRedis(directives);
  const root = connectionTo(server.url);
  await installUsers(root);
  return { server, root };
}

/** The commands that were refused since installUsers, for all users. */
export async function refusals(redis: Redis): Promise<string[]> {
  const log = (await redis.acl('LOG')) as unknown[][];
  return log.map((entry) => entry.join(' '));
}

/** Adds the name and password of a shipped user to a URL. */
export function urlOf(user: string, url: string): string {
  const whole = new URL(url);
  whole.username = user;
  whole.password = passwordOf(user);
  return whole.href;
}
