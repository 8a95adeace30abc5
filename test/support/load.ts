import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Observed } from './allowance-checker.ts';
import { post, send } from './http.ts';

/** Keeps `connections` connections to a gateway busy for the given time. Each uses the keys in turn. */
export async function hammer(
  gateway: string,
  keys: readonly string[],
  connections: number,
  durationMs: number,
): Promise<Observed[]> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  const observed: Observed[] = [];
  const end = performance.now() + durationMs;
  const client = async (number: number) => {
    for (let at = number; performance.now() < end; at++)
      observed.push(await ask(gateway, keys[at % keys.length] as string, agent));
  };
  await Promise.all(
    Array.from({ length: connections }, (_, index) => client(Math.floor((index * keys.length) / connections))),
  );
  agent.destroy();
  return observed;
}

function ask(gateway: string, key: string, agent: http.Agent): Promise<Observed> {
  const { promise, resolve, reject } = Promise.withResolvers<Observed>();
  const sentAt = performance.now();
  const request = http.get(`${gateway}/v1/store/orders`, { agent, headers: { authorization: `Bearer ${key}` } });
  request.once('error', reject);
  request.once('response', (response) => {
    const answeredAt = performance.now();
    response.resume();
    response.once('end', () => {
      if (response.statusCode !== 200 && response.statusCode !== 429)
        reject(new Error(`status ${response.statusCode}`));
      resolve({ key, sentAt, answeredAt, admitted: response.statusCode === 200 });
    });
  });
  return promise;
}

/** The outcome of a request. */
export interface Noted {
  readonly endedAt: number;
  readonly ms: number;
  /** `GET 200`, or the method and an error code, as in `GET ECONNREFUSED`. */
  readonly outcome: string;
  /** The id of the added pet. */
  readonly petId?: number;
}

/** Reads and writes that continue until they are stopped. */
export type EverydayLoad = ReturnType<typeof readAndWrite>;

/** The pause after a request without an answer, so that a dead server is not flooded. */
const PAUSE_AFTER_FAULT_MS = 100;

/**
 * Sends requests continuously on keep-alive connections. Three in ten add a pet; the others list pets.
 * @param pauseMs the maximum pause on a connection after an answer
 */
export function readAndWrite(gateway: string, key: string, connections: number, pauseMs = 0) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  const requests: Noted[] = [];
  const outcomes = new Map<string, number>();
  let running = true;
  const client = async () => {
    while (running) {
      const isPost = Math.random() < 0.3;
      const method = isPost ? 'POST' : 'GET';
      const sentAt = performance.now();
      const sent = isPost
        ? post(`${gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key, agent })
        : send(`${gateway}/v1/pets`, { key, agent });
      let pause = Math.random() * pauseMs;
      const noted = await sent.then(
        ({ status, json }) => ({
          outcome: `${method} ${status}`,
          ...(status === 201 && { petId: (json as { id: number }).id }),
        }),
        ({ code, message }) => {
          pause = PAUSE_AFTER_FAULT_MS;
          return { outcome: `${method} ${code ?? message}` };
        },
      );
      const endedAt = performance.now();
      requests.push({ ...noted, endedAt, ms: endedAt - sentAt });
      outcomes.set(noted.outcome, (outcomes.get(noted.outcome) ?? 0) + 1);
      if (pause > 0) await sleep(pause);
    }
  };
  const clients = Array.from({ length: connections }, client);
  return {
    requests: requests as readonly Noted[],
    /** How often each outcome occurred. */
    outcomes: outcomes as ReadonlyMap<string, number>,
    /** Stops the load, and resolves once all sent requests are answered. */
    async end(): Promise<void> {
      running = false;
      await Promise.all(clients);
      agent.destroy();
    },
  };
}
