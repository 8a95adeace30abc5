import type { Socket } from 'node:net';
import { faultyCore } from './faulty-core.ts';
import { type Answer, post, type Sent, send } from './http.ts';
import { type Stack, startStack, UNLIMITED } from './stack.ts';

/** A gateway in front of a core that the test provides, and a key. */
export interface StackBefore {
  /** The core's URL. */
  readonly core: string;
  readonly stack: Stack;
  readonly key: string;
  /** Lists pets with the key. @param rest of the URL, after /v1/pets */
  get(rest?: string, sent?: Sent): Promise<Answer>;
  post(rest?: string, body?: unknown, sent?: Sent): Promise<Answer>;
}

/**
 * @param core the core's URL, or a handler for its requests
 * @param limits of the key
 */
export async function stackBefore(
  core: string | ((socket: Socket, head: string) => void),
  settings: Record<string, string> = {},
  limits: Record<string, unknown> = UNLIMITED,
): Promise<StackBefore> {
  const url = typeof core === 'string' ? core : await faultyCore(core);
  const stack = await startStack({ CORE_URL: url, ...settings });
  const key = await stack.issueKey(limits);
  const pets = `${stack.gateway}/v1/pets`;
  return {
    core: url,
    stack,
    key,
    get: (rest = '', sent = {}) => send(pets + rest, { key, ...sent }),
    post: (rest = '', body = {}, sent = {}) => post(pets + rest, body, { key, ...sent }),
  };
}
