import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { clientIdOf, faultyCore } from './faulty-core.ts';
import { type Answer, post, send } from './http.ts';
import { startStack } from './stack.ts';

/** By the request id of the client: the numbers of the cores that received the request, in order. */
type Asked = Map<string, number[]>;

type Misbehaviour = (socket: Socket, answer: string, at: number) => unknown;

const hang = () => new Promise<never>(() => {});

const MISBEHAVIOURS: Readonly<Record<string, Misbehaviour>> = {
  none: (socket, answer) => socket.write(answer),
  closes: (socket, answer, at) => socket.end(answer.slice(0, at)),
  resets(socket, answer, at) {
    socket.write(answer.slice(0, at), () => socket.resetAndDestroy());
    return hang();
  },
  async 'resets-late'(socket, _answer, at) {
    await sleep(at);
    socket.resetAndDestroy();
    return hang();
  },
  stalls(socket, answer, at) {
    socket.write(answer.slice(0, at));
    return hang();
  },
  async late(socket, answer, at) {
    await sleep(at);
    socket.write(answer);
  },
  garbage: (socket) => socket.write('SSH-2.0-OpenSSH_9.6\r\n\r\n'),
  'both-framings': (socket, answer) =>
    socket.write(answer.replace('\r\n\r\n', '\r\nTransfer-Encoding: chunked\r\n\r\n')),
  'two-lengths': (socket, answer) => socket.write(answer.replace('\r\n\r\n', '\r\nContent-Length: 3\r\n\r\n')),
  'no-framing': (socket, answer) => socket.end(answer.replace(/\r\ncontent-length: \d+/, '')),
  'long-head': (socket, answer) => socket.write(answer.replace('\r\n\r\n', `\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`)),
  'too-long': (socket, answer) => socket.write(`${answer}more`),
  'too-long-by-an-answer': (socket, answer) => socket.write(answer + answer.replace('{', '!')),
  continue: (socket, answer) => socket.write(`HTTP/1.1 100 Continue\r\n\r\n${answer}`),
  'early-hints': (socket, answer) => socket.write(`HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n${answer}`),
  'switching-protocols': (socket) =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'),
};

/**
 * Starts a core that applies the fault named in a request's query, and gives a valid answer to everything else:
 *
 *     ?fault=<name>&at=<bytes, from the end if negative>&times=<attempts>&framing=chunked
 *
 * Requests on one connection are answered in order. A valid answer contains the client's request id, so that mix-ups
 * are detected.
 * @param asked records the attempts of each request; several cores can share it
 */
function misbehavingCore(asked: Asked, number: number): Promise<string> {
  const turns = new WeakMap<Socket, Promise<unknown>>();
  return faultyCore((socket, head) => {
    const id = /\r\nX-Request-Id: (\S+)/i.exec(head)?.[1] ?? '';
    const attempts = [...(asked.get(clientIdOf(id)) ?? []), number];
    asked.set(clientIdOf(id), attempts);
    const turn = turns.get(socket) ?? Promise.resolve();
    turns.set(
      socket,
      turn.then(() => serve(socket, head, id, attempts.length)),
    );
  });
}

function serve(socket: Socket, head: string, id: string, attempt: number): unknown {
  const { searchParams: query } = new URL(head.split(' ', 2)[1] ?? '', 'http://core');
  const isOver = attempt > Number(query.get('times') ?? Number.POSITIVE_INFINITY);
  const misbehave = MISBEHAVIOURS[isOver ? 'none' : (query.get('fault') ?? 'none')] as Misbehaviour;
  const answer = goodAnswer(id, query.get('framing') === 'chunked');
  return misbehave(socket, head.startsWith('HEAD') ? headOf(answer) : answer, Number(query.get('at') ?? 0));
}

/** The complete bytes of a valid answer. */
export function goodAnswer(id: string, isChunked: boolean): string {
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: ${id}\r\n`;
  const body = goodBody(clientIdOf(id));
  if (!isChunked) return `${head}content-length: ${body.length}\r\n\r\n${body}`;
  const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
  return `${head}transfer-encoding: chunked\r\n\r\n${chunk(body.slice(0, 4))}${chunk(body.slice(4))}${chunk('')}`;
}

const goodBody = (id: string): string => JSON.stringify({ id });

const headOf = (answer: string): string => answer.slice(0, answer.indexOf('\r\n\r\n') + 4);

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
