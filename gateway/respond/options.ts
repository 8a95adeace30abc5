import { takesNoBody } from '../../shared/body.ts';
import { HttpError } from '../../shared/errors.ts';
import type { AddressAllowance } from '../access/address-allowance.ts';
import type { Exchange } from '../exchange.ts';
import { limitHeaders } from './limit-headers.ts';

interface OptionsParts {
  readonly allowance: AddressAllowance;
  readonly draftFields: boolean;
}

/**
 * Answers OPTIONS: which methods there are (RFC 9110 §9.3.7). It needs no key, and is paid from the address's allowance.
 * @throws {HttpError} 429 or 400
 */
export function answerOptions(
  exchange: Exchange,
  { hasBody }: { readonly hasBody: boolean },
  allowed: string,
  { allowance, draftFields }: OptionsParts,
): void {
  exchange.standing = allowance.charge(exchange.address);
  if (exchange.standing.outcome === 'refused') throw new HttpError('rate_limit_exceeded');
  if (hasBody) throw takesNoBody();
  const headers = ['X-Request-Id', exchange.id, ...limitHeaders(exchange.standing, draftFields)];
  exchange.response.writeHead(204, ['Allow', allowed, ...headers]).end();
}
