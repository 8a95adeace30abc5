import { StoreUnavailable } from '../../limiter/limiter.ts';

/** Returns Redis' answer. Any failed command means that Redis is unavailable. */
export async function orUnavailable<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (cause) {
    throw new StoreUnavailable(`Redis failed: ${(cause as Error).message}`);
  }
}
