import { expect } from 'vitest';
import { send } from '../support/http.ts';
import type { Stack } from '../support/stack.ts';

/** Issues a key with this limit and uses up its tokens, with as many requests. */
export async function usedUpKey(stack: Stack, minute: number): Promise<string> {
  const key = await stack.issueKey({ minute, day: 100_000 });
  const spend = () => send(`${stack.gateway}/v1/pets`, { key });
  const spent = await Promise.all(Array.from({ length: minute }, spend));
  expect(new Set(spent.map(({ status }) => status))).toEqual(new Set([200]));
  return key;
}
