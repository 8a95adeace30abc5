import { expect, test } from 'vitest';
import { beganAt, describeLine, isShown, parseLine } from '../../deploy/log-text.ts';

/** Log lines on the terminal of `npm start`. */

const plain = (_style: unknown, text: string) => text;
const marked = (style: unknown, text: string) => `<${String(style)}>${text}</>`;

const REQUEST = {
  level: 30,
  time: new Date(2026, 10, 20, 22, 34, 6).toISOString(),
  service: 'gateway',
  method: 'GET',
  path: '/v1/pets',
  status: 200,
  keyId: '4fXk20LmQa9z',
  plan: 'pro',
  outcome: 'admitted',
  address: '127.0.0.1',
  durationMs: 4.21,
  msg: 'request',
};

test('a request is one short line', () => {
  expect(describeLine(REQUEST, 'acme', plain)).toBe('22:34:06 200 GET /v1/pets 4 ms pro acme');
  expect(describeLine(REQUEST, undefined, plain)).toBe('22:34:06 200 GET /v1/pets 4 ms pro 4fXk20LmQa9z');
});

test('a request began before its line, by as long as it took; an event began with its line', () => {
  const at = Date.parse(REQUEST.time);
  expect(beganAt(REQUEST)).toBe(at - 4.21);
  expect(beganAt({ time: REQUEST.time, msg: 'redis is back' })).toBe(at);
});

test('the status has the colour of its class, and a refusal its code', () => {
  const styleOf = (status: number) => /<(\w+)>\d{3}</.exec(describeLine({ ...REQUEST, status }, 'acme', marked))?.[1];
  expect([200, 304, 429, 503].map(styleOf)).toEqual(['green', 'green', 'yellow', 'red']);
  const refused = { ...REQUEST, status: 429, code: 'rate_limit_exceeded' };
  expect(describeLine(refused, 'acme', plain)).toBe('22:34:06 429 GET /v1/pets 4 ms pro acme rate_limit_exceeded');
  const failed = { ...REQUEST, level: 40, status: 502, code: 'bad_gateway', reason: 'connect ECONNREFUSED' };
  expect(describeLine(failed, 'acme', plain)).toBe(
    '22:34:06 502 GET /v1/pets 4 ms pro acme bad_gateway connect ECONNREFUSED',
  );
});

test('other lines have their level, their service, and what they say', () => {
  const { time } = REQUEST;
  const away = { level: 50, time, service: 'gateway', reason: 'connect ECONNREFUSED', msg: 'redis is away' };
  expect(describeLine(away, undefined, plain)).toBe('22:34:06 error gateway redis is away: connect ECONNREFUSED');
  const changed = { level: 30, time, service: 'gateway', changes: ['free.minute: 60 -> 61'], msg: 'plans changed' };
  expect(describeLine(changed, undefined, plain)).toBe(
    '22:34:06 info gateway plans changed changes=["free.minute: 60 -> 61"]',
  );
});

test('what an operator did is said with who and why', () => {
  const about = { actor: 'ann', action: 'plan.change', target: 'pro', via: 'cli' };
  const activity = { ...about, reason: 'acme asked', changes: [{ field: 'pro.minute', from: '300', to: '400' }] };
  const line = { level: 30, time: REQUEST.time, service: 'gateway', activity, msg: 'activity' };
  expect(describeLine(line, undefined, plain)).toBe(
    '22:34:06 plan.change pro by ann, pro.minute 300 -> 400, acme asked',
  );
});

test('an unknown fault has its stack', () => {
  const err = { message: 'broken', stack: 'Error: broken\n    at here' };
  const failed = { ...REQUEST, level: 50, status: 500, code: 'internal_error', err };
  expect(describeLine(failed, 'acme', plain)).toBe(
    '22:34:06 500 GET /v1/pets 4 ms pro acme internal_error broken\nError: broken\n    at here',
  );
});

test('what repeats another line, or is only looked at, is not shown; failures are', () => {
  const operator = { ...REQUEST, msg: 'operator request' };
  expect(isShown(operator)).toBe(false);
  expect(isShown({ ...operator, method: 'PATCH' })).toBe(true);
  expect(isShown({ ...operator, level: 40, status: 503 })).toBe(true);
  const forwarded = { ...REQUEST, service: 'core', callerId: '4fXk20LmQa9z' };
  expect(isShown(forwarded)).toBe(false);
  expect(isShown({ ...forwarded, status: 500, level: 50 })).toBe(true);
  expect(isShown({ ...forwarded, callerId: undefined })).toBe(true);
  expect(isShown(REQUEST)).toBe(true);
});

test('a client cannot manipulate the terminal, and other lines are left as they are', () => {
  const line = parseLine(JSON.stringify({ ...REQUEST, path: '/v1/\u001b[2J\npets\u009b' }));
  expect(describeLine(line ?? {}, 'acme', plain)).toContain(' GET /v1/\u{fffd}[2J\u{fffd}pets\u{fffd} ');
  expect(parseLine('{"a":')).toBeUndefined();
  expect(parseLine('3')).toBeUndefined();
});
