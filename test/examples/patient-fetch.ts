import { setTimeout as sleep } from 'node:timers/promises';

const MAX_TRIES = 10;

/**
 * fetch that obeys Retry-After: what was refused with it (429, 503) is sent again after as many seconds, and a random part
 * of one more, so that clients that share a key do not come at the same moment each time. A POST should bear an
 * Idempotency-Key, so that it is carried out once however often it is sent.
 */
export async function patientFetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  for (let tries = 1; ; tries++) {
    const response = await fetch(request.clone());
    const seconds = Number(response.headers.get('retry-after'));
    if (!(seconds > 0) || tries === MAX_TRIES) return response;
    await response.body?.cancel();
    await sleep((seconds + Math.random()) * 1_000);
  }
}
