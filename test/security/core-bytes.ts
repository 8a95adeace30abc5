/**
 * Checks that the bytes that a core received are complete requests in one strict form, each admitted by the gateway.
 * The check shares no code with the gateway.
 */

import { clientIdOf } from '../support/faulty-core.ts';

/** An admitted request in the log. */
export interface Decided {
  readonly id: string;
  readonly method: string;
  readonly path: string;
}

const REQUEST_LINE = /^(GET|HEAD|POST) (\/v1(?:\/[A-Za-z0-9-]+)+)(?:\?[A-Za-z0-9=&?/.%]*)? HTTP\/1\.1$/;
const HEADER = /^([A-Za-z0-9-]+): ?([\t\x20-\x7e\x80-\xff]*)$/;
const NEVER = /^(transfer-encoding|expect|upgrade|te|trailer|keep-alive|proxy-.*|cookie|forwarded|http2-settings-?)$/;
const ONCE = ['host', 'x-request-id', 'x-caller-id', 'x-forwarded-for', 'x-forwarded-host', 'traceparent'];

export interface Judgement {
  /** The number of requests in the bytes. */
  requests: number;
  /** Empty if every byte belongs to an admitted request. */
  readonly faults: string[];
}

export function judge(received: readonly string[], decided: readonly Decided[]): Judgement {
  const open = new Map<string, number>();
  for (const { id, method, path } of decided) {
    const name = `${id} ${method} ${path}`;
    open.set(name, (open.get(name) ?? 0) + 1);
  }
  const judgement: Judgement = { requests: 0, faults: [] };
  for (const bytes of received) judgeConnection(bytes, open, judgement);
  return judgement;
}

function judgeConnection(bytes: string, open: Map<string, number>, judgement: Judgement): void {
  const { faults } = judgement;
  let rest = bytes;
  while (rest !== '') {
    const end = rest.indexOf('\r\n\r\n');
    if (end === -1) {
      faults.push(`no request: ${JSON.stringify(rest.slice(0, 200))}`);
      return;
    }
    judgement.requests += 1;
    const [line = '', ...lines] = rest.slice(0, end).split('\r\n');
    const headers = lines.map((text): [string, string] => [
      HEADER.exec(text)?.[1]?.toLowerCase() ?? '',
      HEADER.exec(text)?.[2] ?? '',
    ]);
    faults.push(...faultsOfHead(line, headers), ...faultsOfDecision(line, headers, open));
    const length = Number(headers.find(([name]) => name === 'content-length')?.[1] ?? 0);
    if (end + 4 + length > rest.length) faults.push(`an incomplete body: ${line}`);
    rest = rest.slice(end + 4 + length);
  }
}

function faultsOfHead(line: string, headers: readonly [string, string][]): string[] {
  const names = headers.map(([name]) => name);
  const faults: string[] = [];
  if (!REQUEST_LINE.test(line)) faults.push(`not canonical: ${JSON.stringify(line)}`);
  if (names.includes('')) faults.push(`a malformed header: ${line}`);
  if (names.some((name) => NEVER.test(name))) faults.push(`a header that must not be forwarded: ${line}`);
  // The gateway itself may send keep-alive, the default of HTTP/1.1.
  if (headers.some(([name, value]) => name === 'connection' && value !== 'keep-alive'))
    faults.push(`another Connection header than the gateway's: ${line}`);
  if (new Set(names).size < names.length) {
    const twice = names.filter((name, at) => names.indexOf(name) !== at && name !== 'x');
    if (twice.length > 0) faults.push(`${twice.join(', ')} more than once: ${line}`);
  }
  if (ONCE.some((name) => !names.includes(name))) faults.push(`without a header that the gateway adds: ${line}`);
  if (!line.startsWith('POST') && names.includes('content-length')) faults.push(`a body in a ${line}`);
  return faults;
}

/** Removes the request from the admitted ones. */
function faultsOfDecision(line: string, headers: readonly [string, string][], open: Map<string, number>): string[] {
  const [method = '', target = ''] = line.split(' ');
  const id = headers.find(([name]) => name === 'x-request-id')?.[1];
  const name = `${id && clientIdOf(id)} ${method} ${target.split('?', 1)[0]}`;
  const left = open.get(name) ?? 0;
  if (left === 0) return [`not admitted: ${name}`];
  open.set(name, left - 1);
  return [];
}
