import { parseApiKey } from '../../gateway/limiter/credential.ts';

/** The public part of an API key. */
export const idOf = (key: string): string => key.slice(3, 15);

/** The digest that is stored for a key's secret. */
export const digestIn = (key: string): string => parseApiKey(key)?.digest ?? '';
