import fc from 'fast-check';
import { expect, test } from 'vitest';
import { JsonError, parseJson, toJson } from '../../shared/schemas/json.ts';

const read = (text: string): unknown => parseJson(Buffer.from(text));

test('parseJson agrees with JSON.parse on everything that JSON.parse reads losslessly', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 5, noUnicodeString: false }), (value) => {
      const text = JSON.stringify(value);
      expect(JSON.parse(toJson(read(text)))).toEqual(JSON.parse(text));
    }),
    { numRuns: 2_000 },
  );
});

test('integers of up to 19 digits are exact', () => {
  fc.assert(
    fc.property(fc.bigInt(-(10n ** 19n) + 1n, 10n ** 19n - 1n), (value) => {
      const { a } = read(`{"a":${value}}`) as { a: number | bigint };
      expect(BigInt(a)).toBe(value);
      expect(toJson({ a: value })).toBe(`{"a":${value}}`);
    }),
  );
});

test.for([
  ['{"a":1,"a":1}', '"a" twice'],
  ['{"a":{"b":1,"b":2}}', '"b" twice'],
  ['{"a\\"":1,"a\\u0022":2}', '"a\\"" twice'],
  ['{"\\\\":1,"\\\\":2}', '"\\\\" twice'],
  ['[{"a":1},{"x":[{"c":1,"d":{},"c":1}]}]', '"c" twice'],
] as const)('a body of %s is refused for its repeated member', ([text, message]) => {
  expect(() => read(text)).toThrow(new JsonError(`The body has the member ${message}.`));
});

test.for([
  '{"a":{"a":{"a":1}}}',
  '[{"a":1},{"a":1}]',
  '{"a":"b","b":"a"}',
  '{"a":"\\"a\\":","b":["a","a"]}',
  '"a:\\\\"',
])('a body of %s has no repeated member', (text) => {
  expect(read(text)).toEqual(JSON.parse(text));
});

test.for([
  ['members', '{"a":{"b":1,"c":2}}'],
  ['items', '[[1,2],[]]'],
  ['both', '[{"a":[]},1]'],
] as const)('the limit on the number of values applies to all objects and arrays together: %s', ([, text]) => {
  const count = text === '[[1,2],[]]' ? 5 : 4;
  expect(parseJson(Buffer.from(text), count)).toEqual(JSON.parse(text));
  expect(() => parseJson(Buffer.from(text), count - 1)).toThrow(
    new JsonError(`The body has more than ${count - 1} values.`),
  );
});

test('32 levels of nesting are accepted, 33 are not', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  expect(read(nested(32))).toBeDefined();
  expect(() => read(nested(33))).toThrow(JsonError);
});

test.for([
  '1.00000000000000000001',
  '-0.99999999999999999999999',
  '9007199254740993.5',
  '10000000.000000000001',
  '1e-400',
  '1.00000000000000000001e0',
  '10000000000000000001e-1',
])('the number %s is not read as an integer', (text) => {
  expect(Number.isInteger(read(text))).toBe(false);
});

test.for([
  ['1e2', 100n],
  ['1.0', 1n],
  ['-0.0', 0n],
  ['1e16', 10n ** 16n],
  ['-1E+18', -(10n ** 18n)],
  ['9007199254740993.0', 9007199254740993n],
  ['9223372036854775807.000', 9223372036854775807n],
  ['0.9223372036854775807e19', 9223372036854775807n],
  ['92233720368547758070e-1', 9223372036854775807n],
  ['0e99999999999', 0n],
] as const)('the number %s is read as the integer %s', ([text, value]) => {
  expect(BigInt(read(text) as number)).toBe(value);
});

test('a number of any length is read in a single pass', { timeout: 10_000 }, () => {
  const zeros = '0'.repeat(200_000);
  for (const text of [`1${zeros}1`, `1.${zeros}1`, `1${zeros}`, `0.${zeros}1e3`, `1e${zeros}1`])
    expect(typeof read(text)).toBe('number');
});

test('a fraction keeps its value', () => {
  const plain = fc.double({ noNaN: true, noDefaultInfinity: true }).filter((value) => !Number.isInteger(value));
  fc.assert(fc.property(plain, (value) => read(String(value)) === value));
});

test('a member with any name is written, including __proto__', () => {
  const text = '{"a":1,"__proto__":{"b":[2]},"constructor":3}';
  expect(toJson(JSON.parse(text))).toBe(text);
});
