import fc from 'fast-check';
import { expect, test } from 'vitest';
import { anyCharacter, FUZZ_SECONDS, FUZZ_SEED, unhandled } from '../support/fuzz.ts';
import { send, sendBytes } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** Random requests in valid HTTP syntax. */

interface Generated {
  readonly method: string;
  readonly target: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
  readonly framing: 'length' | 'chunks' | 'none';
  readonly withKey: boolean;
}

const byte = (from: number, to: number) => fc.integer({ min: from, max: to }).map((code) => String.fromCharCode(code));
const visible = fc.string({ unit: byte(0x21, 0x7e), maxLength: 40 });
const fieldValue = fc.string({ unit: fc.oneof(byte(0x20, 0x7e), byte(0x80, 0xff)), maxLength: 60 });

const segment = fc.oneof(
  fc.constantFrom('', ...'v1 pets store orders 1 -1 . .. %2e %2F %00 9223372036854775808'.split(' ')),
  fc.bigInt(-(2n ** 64n), 2n ** 64n).map(String),
  visible.map((text) => text.replaceAll(/[/?#]/g, '_')),
  fc.string({ unit: 'grapheme' }).map(encodeURIComponent),
);
const path = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('/v1/pets', '/v1/store/orders', '/v1/pets/1') },
  { weight: 1, arbitrary: fc.array(segment, { maxLength: 5 }).map((segments) => `/${segments.join('/')}`) },
  { weight: 1, arbitrary: visible.map((text) => text || '*') },
);
const parameter = fc.tuple(
  fc.constantFrom('limit', 'status', 'after', 'x', '', '%'),
  fc.oneof(
    fc.constantFrom('', '0', '1', '100', '101', 'sold', '%', '%00', '%ff', '1e1'),
    visible,
    fc.string({ unit: 'grapheme' }).map(encodeURIComponent),
  ),
);
const query = fc
  .array(parameter, { maxLength: 4 })
  .map((pairs) => (pairs.length === 0 ? '' : `?${pairs.map((pair) => pair.join('=')).join('&')}`));

const NAMES = `Accept Connection Content-Type Content-Encoding Expect Forwarded Host Idempotency-Key Range TE Trailer
  Upgrade X-Caller-Id X-Forwarded-For X-Request-Id`.split(/\s+/);
const NAMES_OF_OBJECTS = ['__proto__', 'constructor'];

const header = fc.tuple(
  fc.oneof(fc.constantFrom(...NAMES, ...NAMES_OF_OBJECTS), fc.stringMatching(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}$/)),
  fc.oneof(
    fieldValue,
    fc.constantFrom('close', 'keep-alive', 'upgrade', 'identity', 'gzip', '100-continue', 'application/json', 'a', ','),
  ),
);

const pet = fc.record(
  {
    name: fc.oneof(fc.string({ unit: anyCharacter, maxLength: 210 }), fc.jsonValue()),
    categoryId: fc.oneof(fc.integer(), fc.double(), fc.jsonValue()),
    status: fc.oneof(fc.constantFrom('available', 'pending', 'sold'), fc.jsonValue()),
  },
  { requiredKeys: [] },
);
const body = fc.oneof(
  pet.map((value) => JSON.stringify(value)),
  fc.json(),
  fc.bigInt().map((id) => `{"name":"Rex","categoryId":${id}}`),
  fc.string({ unit: byte(0, 0xff), maxLength: 100 }),
);

const request: fc.Arbitrary<Generated> = fc.record({
  method: fc.oneof(
    fc.constantFrom('GET', 'POST', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE'),
    fc.stringMatching(/^[A-Z]{1,10}$/),
  ),
  target: fc.tuple(path, query).map((parts) => parts.join('')),
  headers: fc.array(header, { maxLength: 8 }),
  body,
  framing: fc.constantFrom('length', 'chunks', 'none'),
  withKey: fc.boolean(),
});

function toBytes({ method, target, headers, body: text, framing, withKey }: Generated, key: string): Buffer {
  const lines = [`${method} ${target} HTTP/1.1`, 'Host: a', 'Connection: close', 'Content-Type: application/json'];
  if (withKey) lines.push(`Authorization: Bearer ${key}`);
  lines.push(...headers.map(([name, value]) => `${name}: ${value}`));
  const bytes = Buffer.from(text);
  if (framing === 'length') lines.push(`Content-Length: ${bytes.length}`);
  if (framing === 'chunks') lines.push('Transfer-Encoding: chunked');
  const head = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  if (framing === 'none') return head;
  if (framing === 'length') return Buffer.concat([head, bytes]);
  const size = bytes.length === 0 ? '' : `${bytes.length.toString(16)}\r\n`;
  return Buffer.concat([head, Buffer.from(size), bytes, Buffer.from(`${size && '\r\n'}0\r\n\r\n`)]);
}

/** Expects a status below 500 and limit headers, and the Error shape if the answer is a refusal. */
function expectGoodAnswer(answer: string): void {
  const status = Number([...answer.matchAll(/^HTTP\/1\.1 (\d{3}) /gm)].at(-1)?.[1]);
  expect(status).toBeGreaterThanOrEqual(200);
  expect(status).toBeLessThan(500);
  expect(answer).toMatch(/\r\nX-RateLimit-Limit: \d+\r\n/);
  const text = answer.slice(answer.indexOf('\r\n\r\n', answer.lastIndexOf('HTTP/1.1 ')) + 4);
  if (status < 400 || text === '') return;
  expect(JSON.parse(Buffer.from(text, 'latin1').toString())).toEqual({
    code: expect.any(String),
    message: expect.any(String),
    status,
  });
}

test(
  `${FUZZ_SECONDS} s of random requests get only valid answers, and the gateway still works afterwards`,
  async () => {
    const stack = await startStack();
    const key = await stack.issueKey({ plan: 'enterprise', minute: 100_000_000, day: 100_000_000 });
    const faults = unhandled();
    await fc.assert(
      fc.asyncProperty(request, async (generated) => {
        expectGoodAnswer(await sendBytes(stack.gateway, toBytes(generated, key)));
        expect(stack.log.splice(0).filter(({ status, level }) => Number(status) >= 500 || level >= 50)).toEqual([]);
        expect(faults).toEqual([]);
      }),
      {
        seed: FUZZ_SEED,
        numRuns: 10_000_000,
        interruptAfterTimeLimit: FUZZ_SECONDS * 1_000,
        markInterruptAsFailure: false,
      },
    );
    expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  },
  FUZZ_SECONDS * 1_000 + 60_000,
);
