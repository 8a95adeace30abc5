import { setTimeout as sleep } from 'node:timers/promises';

const MAX_TRIES = 10;

/**
 * A fetch that respects Retry-After. A request that is refused with this header (429, 503) is sent again after that
 * many seconds, plus a random fraction of a second, so that clients with the same key do not all retry together. Give a
 * POST an Idempotency-Key, so that it is carried out only once.
 */
export async function patientFetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  for (let tries = 1; ; tries++) {
    const response = await fetch(request.clone());
    const seconds = Number(response.headers.get('retry-after'));
    if (!(seconds > 0) || tries === MAX_TRIES) return response;
    await response.body?.cancel();
    const { signal } = request;
    await sleep((seconds + Math.random()) * 1_000, undefined, { signal }).catch(() => signal.throwIfAborted());
  }
}
