import { AccessUnavailable } from '../limiter.ts';

/** What Redis answers, or in one word that it does not: every failed command is a Redis that cannot be reached. */
export async function orUnavailable<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (cause) {
    throw new AccessUnavailable(`Redis failed: ${(cause as Error).message}`);
  }
}
