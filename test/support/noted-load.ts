import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { post, send } from './http.ts';

/** What became of a request. */
export interface Noted {
  readonly endedAt: number;
  readonly ms: number;
  /** `GET 200`, or the method and an error code, as in `GET ECONNREFUSED`. */
  readonly outcome: string;
  /** Of the pet that was added. */
  readonly petId?: number;
}

export interface NotedLoad {
  readonly requests: readonly Noted[];
  /** Resolves once all sent requests are answered. */
  end(): Promise<void>;
}

const PAUSE_MS = 20;
/** After a request without an answer, so that a dead server is not asked without end. */
const PAUSE_AFTER_FAULT_MS = 100;

/** Keeps kept-alive connections busy until it is ended, and notes every request: three of ten add a pet, the others list pets. */
export function notedLoad(gateway: string, key: string, connections: number): NotedLoad {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  const requests: Noted[] = [];
  let isRunning = true;
  const client = async () => {
    while (isRunning) {
      const isPost = Math.random() < 0.3;
      const method = isPost ? 'POST' : 'GET';
      const sentAt = performance.now();
      const sent = isPost
        ? post(`${gateway}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key, agent })
        : send(`${gateway}/v1/pets`, { key, agent });
      const noted = await sent.then(
        ({ status, json }) => ({
          outcome: `${method} ${status}`,
          ...(status === 201 && { petId: (json as { id: number }).id }),
        }),
        ({ code, message }) => ({ outcome: `${method} ${code ?? message}` }),
      );
      const endedAt = performance.now();
      requests.push({ ...noted, endedAt, ms: endedAt - sentAt });
      await sleep(/\d$/.test(noted.outcome) ? PAUSE_MS : PAUSE_AFTER_FAULT_MS);
    }
  };
  const clients = Array.from({ length: connections }, client);
  return {
    requests,
    async end() {
      isRunning = false;
      await Promise.all(clients);
      agent.destroy();
    },
  };
}
