import type { Socket } from 'node:net';
import { faultyCore } from './faulty-core.ts';
import { post, type Sent, send } from './http.ts';
import { startStack, UNLIMITED } from './stack.ts';

/**
 * Starts a gateway in front of a core that the test provides, and issues a key.
 * @param core the core's URL, or a handler for its requests
 * @param limits the limits of the key
 */
export async function stackBefore(
  core: string | ((socket: Socket, head: string) => void),
  settings: Record<string, string> = {},
  limits: Record<string, unknown> = UNLIMITED,
) {
  const url = typeof core === 'string' ? core : await faultyCore(core);
  const stack = await startStack({ CORE_URL: url, ...settings });
  const key = await stack.issueKey(limits);
  const pets = `${stack.gateway}/v1/pets`;
  return {
    /** The core's URL. */
    core: url,
    stack,
    key,
    /** Lists pets with the key. @param rest the part of the URL after /v1/pets */
    get: (rest = '', sent: Sent = {}) => send(pets + rest, { key, ...sent }),
    post: (rest = '', body: unknown = {}, sent: Sent = {}) => post(pets + rest, body, { key, ...sent }),
  };
}
