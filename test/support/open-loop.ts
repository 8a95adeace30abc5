import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

export interface Sent {
  readonly status: number;
  /** From the scheduled start to the end of its answer. */
  readonly ms: number;
  /** When its answer was complete, on the clock of performance.now(). */
  readonly at: number;
  readonly headers: http.IncomingHttpHeaders;
}

/**
 * Sends requests at a fixed rate, whether or not earlier ones were answered. A request without an answer has status 0.
 */
export async function openLoop(url: string, key: string, ratePerSecond: number, seconds: number): Promise<Sent[]> {
  const agent = new http.Agent({ keepAlive: true });
  const startedAt = performance.now();
  const under: Promise<Sent>[] = [];
  while (under.length < ratePerSecond * seconds) {
    const due = Math.floor(((performance.now() - startedAt) / 1_000) * ratePerSecond);
    while (under.length < due) under.push(ask(url, key, agent, startedAt + (under.length / ratePerSecond) * 1_000));
    await sleep(1);
  }
  const sent = await Promise.all(under);
  agent.destroy();
  return sent;
}

function ask(url: string, key: string, agent: http.Agent, due: number): Promise<Sent> {
  const { promise, resolve } = Promise.withResolvers<Sent>();
  const answered = (status: number, headers: http.IncomingHttpHeaders = {}) => {
    const at = performance.now();
    resolve({ status, ms: at - due, at, headers });
  };
  const request = http.get(url, { agent, headers: { authorization: `Bearer ${key}` } }, (response) => {
    response.resume();
    response.once('end', () => answered(response.statusCode ?? 0, response.headers));
  });
  request.once('error', () => answered(0));
  return promise;
}
