import { expect } from 'vitest';
import { createStoreClient, type StoreClient, StoreError } from '../../shared/client/client.ts';
import { cleanUp } from './clean-up.ts';
import { faultyCore } from './faulty-core.ts';

/** A pet as the core writes it. */
export const PET = '{"id":7,"name":"Rex","categoryId":1,"status":"sold"}';

/** A client that is closed after the test. */
export function clientOf(url: string, options: Omit<Parameters<typeof createStoreClient>[0], 'url'> = {}): StoreClient {
  const client = createStoreClient({ url, ...options });
  cleanUp(() => client.close());
  return client;
}

export const answer = (status: string, body: string, headers = '') =>
  `HTTP/1.1 ${status}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`;

export const unavailable = (headers = '') =>
  answer('503 Service Unavailable', '{"code":"unavailable","message":"Not now.","status":503}', headers);

/**
 * Starts a core that gives each request the next of these answers, and repeats the last one. Undefined cuts the
 * connection.
 */
export async function coreThatAnswers(...answers: (string | undefined)[]): Promise<{ url: string; heads: string[] }> {
  const heads: string[] = [];
  const url = await faultyCore((socket, head) => {
    const text = answers[Math.min(heads.push(head), answers.length) - 1];
    if (text === undefined) socket.destroy();
    else socket.write(text);
  });
  return { url, heads };
}

/** The error of a call. The client must throw only StoreErrors. */
export async function faultOf(call: Promise<unknown>): Promise<StoreError> {
  const fault: unknown = await call.then(
    () => undefined,
    (thrown) => thrown,
  );
  expect(fault).toBeInstanceOf(StoreError);
  return fault as StoreError;
}

export async function timed<T>(work: Promise<T>): Promise<{ result: T; ms: number }> {
  const startedAt = performance.now();
  return { result: await work, ms: performance.now() - startedAt };
}
