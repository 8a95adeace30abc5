import { setTimeout as sleep } from 'node:timers/promises';
import type { LogLine } from './log.ts';

/**
 * Checks every 5xx answer that a test gets from one of the project's servers. The server must have logged a line with
 * the request id, the status and the cause, and must have counted the failure.
 */

export interface Failure {
  readonly status: number;
  readonly requestId: string;
}

interface Watched {
  readonly url: string;
  readonly failures: Failure[];
}

const watched = new Map<string, Watched>();

/** Call this for every answer that a test receives. */
export function noteAnswer(url: string, status: number, requestId: string | undefined): void {
  if (status >= 500) watched.get(new URL(url).origin)?.failures.push({ status, requestId: requestId ?? 'none' });
}

interface Explained {
  readonly lines: () => readonly LogLine[];
  /** Returns the number of 5xx answers that the process has counted on the listener at this address. */
  readonly counted?: (url: string) => Promise<number>;
  /** Whether the process cannot respond, for instance because it was killed. */
  readonly isExcused?: () => boolean;
}

/**
 * Records failures at these addresses from now on.
 * @returns the check, which waits for log lines and counters that are still pending. Call it while the process runs.
 */
export function watchFailures(urls: readonly string[], { lines, counted, isExcused }: Explained): () => Promise<void> {
  const here = urls.map((url): Watched => ({ url, failures: [] }));
  for (const one of here) watched.set(one.url, one);
  return async () => {
    for (const { url, failures } of here) {
      if (failures.length === 0 || isExcused?.()) continue;
      const unlogged = () => unexplained(failures, lines());
      if (!(await eventually(() => unlogged().length === 0)))
        throw new Error(`${url}: no log line gives the cause of ${JSON.stringify(unlogged())}.`);
      if (counted !== undefined && !(await eventually(async () => (await counted(url)) >= failures.length)))
        throw new Error(`${url}: ${failures.length} failures were seen, and ${await counted(url)} counted.`);
    }
  };
}

async function eventually(isSo: () => boolean | Promise<boolean>): Promise<boolean> {
  const deadline = performance.now() + 5_000;
  while (!(await isSo())) {
    if (performance.now() > deadline) return false;
    await sleep(20);
  }
  return true;
}

/** The failures for which no log line names the cause. */
export function unexplained(failures: readonly Failure[], lines: readonly LogLine[]): Failure[] {
  const explained = new Set(lines.filter(hasCause).map(({ requestId, status }) => `${requestId} ${status}`));
  return failures.filter(({ requestId, status }) => !explained.has(`${requestId} ${status}`));
}

const hasCause = ({ reason, err }: LogLine): boolean =>
  (typeof reason === 'string' && reason !== '') || err !== undefined;
