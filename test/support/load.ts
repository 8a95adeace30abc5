import http from 'node:http';
import type { Observed } from './allowance-checker.ts';

/** Keeps `connections` connections to a gateway busy until the time is over, with the keys in a turn of their own each. */
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
