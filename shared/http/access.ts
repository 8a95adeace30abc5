import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';
import { carriesToken } from './headers.ts';
import type { Route } from './router.ts';

/** The access rules of a service. To refuse a request, a method throws an {HttpError}. */
export interface Access<Caller> {
  /** Called first for every request. */
  admit(request: IncomingMessage): void;
  /** @param isOpen whether the path needs no caller */
  identify(request: IncomingMessage, isOpen: boolean): Promise<Caller>;
  /** Called for every route that is not open. */
  authorize(caller: Caller, route: Route & { readonly needs?: string }): void;
  /** The caller's name in the log; undefined if it has none. */
  nameOf(caller: Caller): string | undefined;
}

/**
 * Bearer tokens, each for everything; undefined requires none.
 * @param tokens read for every request
 * @throws {RangeError} for an empty token or list of tokens, because its meaning is unclear
 */
export function bearerTokens(tokens: () => readonly string[] | undefined): Access<undefined> {
  if (tokens()?.length === 0 || tokens()?.includes(''))
    throw new RangeError('The token of a service must not be empty.');
  return {
    admit() {},
    async identify({ headers }, isOpen) {
      if (isOpen) return undefined;
      const expected = tokens();
      if (expected === undefined || carriesToken(headers.authorization, expected)) return undefined;
      throw noToken();
    },
    authorize() {},
    nameOf: () => undefined,
  };
}

export const noToken = (): HttpError => new HttpError('unauthorized', 'The token of this service is required.');
