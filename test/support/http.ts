import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { answersIn, checkAnswer, checkBytes } from './described-answers.ts';
import { noteAnswer } from './failures.ts';

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
  /** The parsed body, or undefined if it is not JSON. */
  readonly json: unknown;
}

export interface Sent {
  readonly method?: string;
  readonly key?: string | undefined;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Buffer;
  readonly agent?: http.Agent;
  /** The address to connect from. */
  readonly from?: string;
  /** Trusted certificates, for https:// URLs. */
  readonly ca?: Buffer | undefined;
}

/**
 * Sends one request, on a new connection unless an agent is given.
 * @throws {Error} if an answer from a gateway does not match the description of its API
 */
export async function send(url: string, sent: Sent = {}): Promise<Answer> {
  const answer = await exchange(url, sent);
  noteAnswer(url, answer.status, String(answer.headers['x-request-id']));
  checkAnswer({ url, method: sent.method ?? 'GET' }, answer);
  return answer;
}

function exchange(url: string, { method = 'GET', key, headers = {}, body, agent, from, ca }: Sent): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const { protocol, hostname, port } = new URL(url);
  const path = url.slice(url.indexOf('/', url.indexOf('://') + 3));
  const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const request = (protocol === 'https:' ? https : http).request({
    hostname,
    port,
    path,
    method,
    agent: agent ?? false,
    ...(from !== undefined && { localAddress: from }),
    ...(ca !== undefined && { ca }),
    headers: { ...authorization, ...length, ...headers },
  });
  request.once('error', reject);
  request.once('response', async (response) => {
    try {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      const text = Buffer.concat(chunks).toString();
      const isJson = response.headers['content-type']?.startsWith('application/json') && text !== '';
      resolve({
        status: response.statusCode ?? 0,
        headers: response.headers,
        text,
        json: isJson ? JSON.parse(text) : undefined,
      });
    } catch (fault) {
      reject(fault);
    }
  });
  request.end(body);
  return promise;
}

/** Sends a POST. Strings and bytes are sent unchanged, other values as JSON. */
export function post(url: string, body: unknown, sent: Sent = {}): Promise<Answer> {
  const text = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  return send(url, {
    method: 'POST',
    ...sent,
    body: text,
    headers: { 'content-type': 'application/json', ...sent.headers },
  });
}

/**
 * Sends bytes unchanged and returns all bytes received until the other side closes.
 * @throws {Error} if an answer from a gateway does not match the description of its API
 */
export async function sendBytes(url: string, bytes: string | Buffer, waitMs = 2_000): Promise<string> {
  const received = await exchangeBytes(url, bytes, waitMs);
  for (const { status, headers } of answersIn(received)) noteAnswer(url, status, String(headers['x-request-id']));
  checkBytes(url, received);
  return received;
}

function exchangeBytes(url: string, bytes: string | Buffer, waitMs: number): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { hostname, port } = new URL(url);
  const socket = net.connect(Number(port), hostname);
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  socket.once('close', () => resolve(received));
  socket.write(bytes);
  setTimeout(() => socket.destroy(), waitMs).unref();
  return promise;
}
