import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Observed } from './allowance-checker.ts';
import { type Answer, send } from './http.ts';

/** An answer with its duration, and the request id in the gateway's log. */
export interface Answered extends Answer, Observed {
  readonly id: string;
  readonly ms: number;
}

export interface Load {
  /** The answers in order of arrival. */
  readonly answers: readonly Answered[];
  /** Stops the clients, and resolves after the last answer. Fails if a request got no answer. */
  stop(): Promise<void>;
}

/** Starts clients that send one request after another, with a pause in between, until they are stopped. */
export function startLoad(
  gateway: string,
  nextKey: () => string,
  { clients, pauseMs }: { clients: number; pauseMs: number },
): Load {
  const agent = new http.Agent({ keepAlive: true, maxSockets: clients });
  const answers: Answered[] = [];
  let running = true;
  const client = async () => {
    for (; running; await sleep(pauseMs)) answers.push(await ask(gateway, nextKey(), agent));
  };
  const ended = Promise.all(Array.from({ length: clients }, client)).finally(() => agent.destroy());
  ended.catch(() => {});
  return {
    answers,
    async stop() {
      running = false;
      await ended;
    },
  };
}

/** Sends one request and returns its answer. */
export async function ask(gateway: string, key: string, agent?: http.Agent): Promise<Answered> {
  const id = randomUUID();
  const sentAt = performance.now();
  const sent = { key, headers: { 'x-request-id': id }, ...(agent && { agent }) };
  const answer = await send(`${gateway}/v1/store/orders`, sent);
  const answeredAt = performance.now();
  return { ...answer, id, key, sentAt, answeredAt, ms: answeredAt - sentAt, admitted: answer.status === 200 };
}
