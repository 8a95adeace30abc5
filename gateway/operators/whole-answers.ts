import type { ActivityAnswer, ActivityView, TrialAnswer, UsageAnswer, UsageOfKey, UsageSum } from './api/answers.ts';

/** Puts answers in parts together for the console and the command line. One call checks a limited number of records. */

type Ask<T> = (path: string) => Promise<T>;

/** Where the next part begins; undefined after the last one. */
export interface Part {
  readonly next?: string | number | undefined;
}

/** Iterates over the parts of an answer. @param asked the query of the first one */
export async function* partsOf<T extends Part>(
  ask: Ask<T>,
  path: string,
  asked: Readonly<Record<string, string>> = {},
): AsyncGenerator<T> {
  const query = new URLSearchParams(asked);
  for (;;) {
    const part = await ask(query.size === 0 ? path : `${path}?${query}`);
    yield part;
    if (part.next === undefined) return;
    query.set(typeof part.next === 'number' ? 'offset' : 'after', String(part.next));
  }
}

/** Returns the first part that has entries, or the last one, because one call may find none among many records. */
export async function firstFilled<T extends Part>(
  ask: Ask<T>,
  path: string,
  asked: Readonly<Record<string, string>>,
  entriesOf: (part: T) => readonly unknown[],
): Promise<T> {
  let last: T | undefined;
  for await (const part of partsOf(ask, path, asked)) {
    last = part;
    if (entriesOf(part).length > 0) break;
  }
  return last as T;
}

/** The maximum number of entries that one call may return. */
const MOST_A_CALL = 1_000;

/** Reads entries of the audit log, the newest first, until enough were found or the log ends. */
export async function readEntries(
  ask: Ask<ActivityAnswer>,
  asked: Readonly<Record<string, string>>,
  most: number,
): Promise<ActivityAnswer> {
  const activity: ActivityView[] = [];
  const query = new URLSearchParams(asked);
  for (;;) {
    query.set('limit', String(Math.min(most - activity.length, MOST_A_CALL)));
    const part = await ask(`/activity?${query}`);
    activity.push(...part.activity);
    if (part.next === undefined || activity.length >= most) return { activity, next: part.next };
    query.set('after', part.next);
  }
}

/** Sums what keys have used, by key or by the value of a tag, the largest first. */
export async function readUsage(
  ask: Ask<UsageAnswer>,
  asked: Readonly<Record<string, string>>,
): Promise<{ readonly keptFrom: string; readonly rows: (UsageOfKey | UsageSum)[] }> {
  const [ofKeys, sums] = [[] as UsageOfKey[], new UsageSums()];
  let keptFrom = '';
  for await (const part of partsOf(ask, '/usage', asked)) {
    ({ keptFrom } = part);
    for (const row of part.usage) 'id' in row ? ofKeys.push(row) : sums.add(row);
  }
  return { keptFrom, rows: [...ofKeys.sort(largestFirst), ...sums.rows()] };
}

/** Adds up the sums by the value of a tag, because each answer sums only the keys that it checked. */
export class UsageSums {
  readonly #sums = new Map<string | undefined, UsageSum>();

  add({ value, keys, admitted, refused }: UsageSum): void {
    const sum = this.#sums.get(value) ?? { keys: 0, admitted: 0, refused: 0 };
    this.#sums.set(value, {
      value,
      keys: sum.keys + keys,
      admitted: sum.admitted + admitted,
      refused: sum.refused + refused,
    });
  }

  /** The largest first. */
  rows(): UsageSum[] {
    return [...this.#sums.values()].sort(largestFirst);
  }
}

type Used = Pick<UsageSum, 'admitted' | 'refused'>;

/** Sorts by admitted requests, then by refused ones. */
const largestFirst = (a: Used, b: Used): number => b.admitted - a.admitted || b.refused - a.refused;

export type Trial = Omit<TrialAnswer, 'next'> & { readonly isWhole: boolean };

/**
 * Reports what other limits of a plan would have refused, the largest first.
 * @param most the maximum number of parts to read
 */
export async function readTrial(ask: Ask<TrialAnswer>, plan: string, most = Number.POSITIVE_INFINITY): Promise<Trial> {
  const affected: TrialAnswer['affected'][number][] = [];
  let [keys, requests, parts, isWhole] = [0, 0, 0, true];
  for await (const part of partsOf(ask, `/plans/${encodeURIComponent(plan)}/try`)) {
    keys += part.keys;
    requests += part.requests;
    affected.push(...part.affected);
    isWhole = part.next === undefined;
    if (++parts === most) break;
  }
  return { keys, requests, affected: affected.sort((a, b) => b.wouldRefuse - a.wouldRefuse), isWhole };
}
