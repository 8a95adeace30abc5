import { randomUUID } from 'node:crypto';
import type { KeyView } from '../../gateway/operators/api/answers.ts';
import { idOf } from './api-key.ts';
import { type Answer, send } from './http.ts';
import { emptyDatabase } from './redis-database.ts';
import { type Stack, startStack } from './stack.ts';

/** Helpers for tests of operators' features: requests as an operator and as a client. */

/** The settings of a gateway that uses this Redis, with a deadline that is met even on a busy machine. */
export const onRedis = (REDIS_URL: string) => ({ REDIS_URL, REDIS_TIMEOUT_MS: '5000' });

/** Provides an empty Redis for a test file, and the settings of a gateway that uses it. */
export async function operatorsRedis() {
  const { url, redis } = await emptyDatabase();
  const withRedis = onRedis(url);
  /** Empties Redis and starts a stack. By default, the stack uses this Redis. */
  async function fresh(environment: Record<string, string> = withRedis): Promise<Stack> {
    await redis.flushdb();
    return await startStack(environment);
  }
  return { url, redis, withRedis, fresh };
}

export const get = async <T>(stack: Pick<Stack, 'admin'>, path: string): Promise<T> =>
  (await stack.admin('GET', path)).json as T;

/** The name of a key's hash in Redis. */
export const hashOf = (id: string): string => `gateway:key:{${id}}`;

export const viewOf = (stack: Stack, id: string): Promise<KeyView> => get(stack, `/keys/${id}`);

/** Sends a client's request. @param id the request id */
export const ask = (stack: Pick<Stack, 'gateway'>, key?: string, id?: string, path = '/v1/pets'): Promise<Answer> =>
  send(stack.gateway + path, { key, headers: id === undefined ? {} : { 'x-request-id': id } });

/** Sends a client's request with a new request id. */
export async function askOnce(stack: Pick<Stack, 'gateway'>, key?: string, path?: string) {
  const id = randomUUID();
  return { ...(await ask(stack, key, id, path)), id };
}

export const statusOf = async (stack: Stack, key: string): Promise<number> => (await ask(stack, key)).status;

/** Returns 200, or the code of the error. */
export async function codeOf(stack: Stack, key: string): Promise<unknown> {
  const { status, json } = await ask(stack, key);
  return status === 200 ? 200 : (json as { code: string }).code;
}

export const issueId = async (stack: Stack, key?: Record<string, unknown>): Promise<string> =>
  idOf(await stack.issueKey(key));

/** The remaining requests of the day limit, from the RateLimit field of the IETF draft. */
export const dayLeft = ({ headers }: Answer): number => Number(/"day";r=(\d+)/.exec(String(headers.ratelimit))?.[1]);

/** The reasons in the logged errors about values of a key that were typed by hand. */
export const alarmsOf = ({ log }: Pick<Stack, 'log'>, id: string): unknown[] =>
  log.filter(({ msg, keyId }) => msg === 'value of a key rejected' && keyId === id).map(({ reason }) => reason);

/** Reads all pages of a list. @param path the path, with a query */
export async function pagesOf<Page extends { next?: string | number | undefined }>(
  stack: Pick<Stack, 'admin'>,
  path: string,
  more = 'after',
): Promise<Page[]> {
  const pages: Page[] = [];
  for (let next = ''; ; ) {
    const page = await get<Page>(stack, path + next);
    pages.push(page);
    if (page.next === undefined) return pages;
    next = `&${more}=${encodeURIComponent(page.next)}`;
  }
}

/** Creates a token for an operator. */
export const tokenFor = async (stack: Stack, role: string, name = 'ann'): Promise<{ id: string; token: string }> =>
  (await stack.admin('POST', '/tokens', { name, role })).json as { id: string; token: string };
