import { CONNECTIONS } from './connections.ts';
import { FRAMING } from './framing.ts';
import { HEADS } from './heads.ts';
import type { Case } from './parts.ts';

/** Hostile byte streams. Each is sent once with each method. */
export const CORPUS: readonly Case[] = [...FRAMING, ...HEADS, ...CONNECTIONS];
export const METHODS = ['GET', 'POST', 'DELETE', 'OPTIONS'] as const;

/** A case with its method, key and id filled in. */
export interface Stream extends Case {
  readonly id: string;
}

export function streamsOf(cases: readonly Case[], key: string): Stream[] {
  return METHODS.flatMap((method) =>
    cases.map(({ name, writes, cut }, at) => {
      const id = `${method}-${at}`;
      const fill = (text: string) =>
        text.replaceAll('{method}', method).replaceAll('{id}', id).replaceAll('{key}', key);
      return { id, name: `${method}: ${name}`, writes: writes.map(fill), ...(cut && { cut }) };
    }),
  );
}
