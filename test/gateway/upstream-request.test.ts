import { expect, test } from 'vitest';
import { isRepeatable, writeRequest } from '../../gateway/upstream/headers.ts';
import { answer, askOn, lineUnderTest, requestFor } from '../support/line.ts';

/** What is written to a shared connection: exactly one request, whatever its headers contain. */

const withHeader = (name: string, value: string) =>
  requestFor({ target: '/v1/pets?limit=1', headers: ['X', '1', name, value] });

test('a request to the core consists of its line, host, headers and id, byte for byte', () => {
  const value = 'a\tb \x80\xff!~';
  expect(writeRequest(withHeader('Y-z', value), 'a.1', 'core:7001')).toBe(
    `GET /v1/pets?limit=1 HTTP/1.1\r\nHost: core:7001\r\nX: 1\r\nY-z: ${value}\r\nX-Request-Id: a.1\r\n\r\n`,
  );
});

const CODES = [...Array(32).keys(), 0x7f, 0x100, 0x10a, 0x10d, 0x2028, 0xffff].filter((code) => code !== 0x09);

test.for(CODES)('a value with the character %i is never written', (code) => {
  const character = String.fromCharCode(code);
  for (const value of [character, `a${character}`, `${character}b`, `a${character}b`])
    expect(() => writeRequest(withHeader('Y', value), 'a.1', 'core'), JSON.stringify(value)).toThrow('The header Y');
});

test('a request that cannot be written does not affect those before and after it', async () => {
  const heads: string[] = [];
  const { ask, line, connections } = await lineUnderTest((socket, path) => {
    heads.push(path);
    socket.write(answer(path));
  });
  const first = ask('/first');
  const smuggled = withHeader('Y', 'a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: core');
  expect(() => askOn(line, smuggled)).toThrow('cannot be sent');
  const second = ask('/second');
  expect(await Promise.all([first, second])).toEqual(['/first', '/second']);
  expect(heads).toEqual(['/first', '/second']);
  expect(connections).toHaveLength(1);
});

test.for([
  ['GET', undefined, true],
  ['HEAD', undefined, true],
  ['GET', Buffer.from('a'), false],
  ['POST', undefined, false],
  ['DELETE', undefined, false],
  ['OPTIONS', undefined, false],
] as const)('whether %s with the body %j may share a connection: %j', ([method, body, expected]) => {
  expect(isRepeatable(requestFor({ method, body }))).toBe(expected);
});
