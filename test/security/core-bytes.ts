/**
 * Checks that a core received only complete requests in one strict form, and that the gateway admitted each of them.
 * The check shares no code with the gateway.
 */

import { clientIdOf } from '../support/faulty-core.ts';

const REQUEST_LINE = /^(GET|HEAD|POST) (\/v1(?:\/[A-Za-z0-9-]+)+)(?:\?[A-Za-z0-9=&?/.%]*)? HTTP\/1\.1$/;
const HEADER = /^([A-Za-z0-9-]+): ?([\t\x20-\x7e\x80-\xff]*)$/;
const NEVER = /^(transfer-encoding|expect|upgrade|te|trailer|keep-alive|proxy-.*|cookie|forwarded|http2-settings-?)$/;
const ONCE = ['host', 'x-request-id', 'x-caller-id', 'x-forwarded-for', 'x-forwarded-host', 'traceparent'];

/**
 * @param received the bytes of each connection
 * @param admitted the id, method and path of each admitted request
 * @returns the number of requests in the bytes, and no faults if every byte belongs to an admitted request
 */
export function judge(received: readonly string[], admitted: readonly string[]) {
  const open = [...admitted];
  const faults: string[] = [];
  const requests = received.reduce((sum, bytes) => sum + judgeConnection(bytes, open, faults), 0);
  return { requests, faults };
}

/** Adds the faults in the bytes of a connection. @returns the number of its requests */
function judgeConnection(bytes: string, open: string[], faults: string[]): number {
  let requests = 0;
  for (let rest = bytes; rest !== ''; requests++) {
    const end = rest.indexOf('\r\n\r\n');
    if (end === -1) {
      faults.push(`no request: ${JSON.stringify(rest.slice(0, 200))}`);
      break;
    }
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
  return requests;
}

function faultsOfHead(line: string, headers: readonly [string, string][]): string[] {
  const names = headers.map(([name]) => name);
  const faults: string[] = [];
  if (!REQUEST_LINE.test(line)) faults.push(`not canonical: ${JSON.stringify(line)}`);
  if (names.includes('')) faults.push(`a malformed header: ${line}`);
  if (names.some((name) => NEVER.test(name))) faults.push(`a header that must not be forwarded: ${line}`);
  // The gateway itself may send keep-alive, which is the default in HTTP/1.1.
  if (headers.some(([name, value]) => name === 'connection' && value !== 'keep-alive'))
    faults.push(`a Connection header other than the gateway's: ${line}`);
  const twice = names.filter((name, at) => names.indexOf(name) !== at && name !== 'x');
  if (twice.length > 0) faults.push(`${twice.join(', ')} more than once: ${line}`);
  if (ONCE.some((name) => !names.includes(name))) faults.push(`a missing gateway header: ${line}`);
  if (!line.startsWith('POST') && names.includes('content-length')) faults.push(`a body in a ${line}`);
  return faults;
}

/** Removes the request from the admitted ones. */
function faultsOfDecision(line: string, headers: readonly [string, string][], open: string[]): string[] {
  const [method = '', target = ''] = line.split(' ');
  const id = headers.find(([name]) => name === 'x-request-id')?.[1];
  const name = `${id && clientIdOf(id)} ${method} ${target.split('?', 1)[0]}`;
  const at = open.indexOf(name);
  if (at === -1) return [`not admitted: ${name}`];
  open.splice(at, 1);
  return [];
}
