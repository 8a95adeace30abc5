import { randomUUID } from 'node:crypto';
import { type Answer, post, send } from './http.ts';
import { type Asked, goodBody, misbehavingCore } from './misbehaving-core.ts';
import { startStack } from './stack.ts';

/** The outcome of one request to a gateway with a misbehaving core. */
export interface Outcome {
  /** The status, or 'cut' if the connection was cut. */
  readonly seen: number | 'cut';
  readonly answer: Answer | undefined;
  /** Whether the client received the complete answer to its own request. */
  readonly isOwn: boolean;
  /** The numbers of the cores that received the request. */
  readonly asked: readonly number[];
  readonly ms: number;
}

/** Starts a gateway in front of cores that misbehave in the way that each request asks for. */
export async function misbehavingStack(env: Record<string, string>, count = 1) {
  const asked: Asked = new Map();
  const cores = await Promise.all(Array.from({ length: count }, (_, number) => misbehavingCore(asked, number)));
  const stack = await startStack({ ...env, CORE_URL: cores.join(',') });
  const key = await stack.issueKey({ plan: 'enterprise', minute: 1_000_000, day: 1_000_000 });
  return {
    stack,
    async ask(method: string, query = ''): Promise<Outcome> {
      const id = randomUUID();
      const url = `${stack.gateway}/v1/pets?${query}`;
      const sent = { method, key, headers: { 'x-request-id': id } };
      const before = performance.now();
      const answer = await (method === 'POST' ? post(url, {}, sent) : send(url, sent)).catch(isCut);
      const ms = performance.now() - before;
      const isOwn = answer?.text === (method === 'HEAD' ? '' : goodBody(id)) && answer.headers['x-request-id'] === id;
      return { seen: answer?.status ?? 'cut', answer, isOwn, asked: asked.get(id) ?? [], ms };
    },
  };
}

/** Returns undefined if the connection was cut. @throws any other fault */
function isCut(fault: NodeJS.ErrnoException): undefined {
  if (fault.code === 'ECONNRESET') return undefined;
  throw fault;
}
