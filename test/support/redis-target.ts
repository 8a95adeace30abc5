import { credentialsOf, type RedisTarget } from '../../gateway/stores/redis/target.ts';

/** The Redis at these URLs, which are separated by commas. */
export function targetOf(
  mode: RedisTarget['mode'],
  urls: string,
  { timeoutMs = 2_000 }: { timeoutMs?: number } = {},
): RedisTarget {
  const list = urls.split(',');
  return {
    mode,
    urls: list,
    masterName: undefined,
    credentials: () => credentialsOf(list[0] as string),
    sentinelUsername: undefined,
    ca: undefined,
    timeoutMs,
    startMs: 5_000,
  };
}
