import { Readable } from 'node:stream';
import { expect, onTestFinished, test, vi } from 'vitest';
import { TerminalLog } from '../../deploy/log-terminal.ts';

/** Log lines on the terminal of `npm start`. */

const BEGAN = new Date(2026, 10, 20, 22, 34, 6);

const REQUEST = {
  level: 30,
  time: BEGAN.toISOString(),
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

/**
 * The output on the terminal for these lines.
 * @param since when the terminal begins to show requests, in ms after the time of the lines
 */
async function shown(lines: readonly unknown[], since = -1_000): Promise<string> {
  vi.useFakeTimers({ toFake: ['Date'], now: BEGAN.getTime() + since });
  onTestFinished(() => void vi.useRealTimers());
  const log = new TerminalLog();
  log.showRequests();
  const input = lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`);
  let all = '';
  for await (const text of log.texts(Readable.from(input))) all += text;
  return all;
}

test('a request is shown as one short line', async () => {
  expect(await shown([REQUEST])).toBe('22:34:06 200 GET /v1/pets 4 ms pro 4fXk20LmQa9z\n');
});

test('before the terminal shows requests, only warnings appear, and requests that began earlier never do', async () => {
  const event = { level: 30, time: REQUEST.time, service: 'gateway', msg: 'redis is back' };
  expect(await shown([REQUEST, event], -5)).toContain('GET');
  expect(await shown([REQUEST, event], -4)).toBe('22:34:06 info gateway redis is back\n');
  expect(await shown([event, { ...event, level: 40 }], 1)).toBe('22:34:06 warn gateway redis is back\n');
});

test('a status has the colour of its class, and a refusal shows its code', async () => {
  vi.stubEnv('NO_COLOR', undefined);
  vi.stubEnv('FORCE_COLOR', '1');
  onTestFinished(() => void vi.unstubAllEnvs());
  const codeOf = async (status: number) =>
    /\[(\d+)m\d{3}/.exec(await shown([{ ...REQUEST, status, code: 'a_code' }]))?.[1];
  expect(await Promise.all([200, 304, 429, 503].map(codeOf))).toEqual(['32', '32', '33', '31']);
  vi.unstubAllEnvs();
  vi.stubEnv('NO_COLOR', '1');
  const refused = { ...REQUEST, status: 429, code: 'rate_limit_exceeded' };
  expect(await shown([refused])).toBe('22:34:06 429 GET /v1/pets 4 ms pro 4fXk20LmQa9z rate_limit_exceeded\n');
  const failed = { ...REQUEST, level: 40, status: 502, code: 'bad_gateway', reason: 'connect ECONNREFUSED' };
  expect(await shown([failed])).toBe(
    '22:34:06 502 GET /v1/pets 4 ms pro 4fXk20LmQa9z bad_gateway connect ECONNREFUSED\n',
  );
});

test('other lines show their level, service and message', async () => {
  const { time } = REQUEST;
  const away = { level: 50, time, service: 'gateway', reason: 'connect ECONNREFUSED', msg: 'redis is unavailable' };
  const changed = { level: 30, time, service: 'gateway', changes: ['free.minute: 60 -> 61'], msg: 'plans changed' };
  expect(await shown([away, changed])).toBe(
    '22:34:06 error gateway redis is unavailable: connect ECONNREFUSED\n' +
      '22:34:06 info gateway plans changed changes=["free.minute: 60 -> 61"]\n',
  );
});

test('a change by an operator is shown with its actor and reason', async () => {
  const about = { actor: 'ann', action: 'plan.change', target: 'pro', via: 'cli' };
  const activity = { ...about, reason: 'acme asked', changes: [{ field: 'pro.minute', from: '300', to: '400' }] };
  const line = { level: 30, time: REQUEST.time, service: 'gateway', activity, msg: 'activity' };
  expect(await shown([line])).toBe('22:34:06 plan.change pro by ann, pro.minute 300 -> 400, acme asked\n');
});

test('an unknown fault is shown with its stack', async () => {
  const err = { message: 'broken', stack: 'Error: broken\n    at here' };
  const failed = { ...REQUEST, level: 50, status: 500, code: 'internal_error', err };
  expect(await shown([failed])).toBe(
    '22:34:06 500 GET /v1/pets 4 ms pro 4fXk20LmQa9z internal_error broken\nError: broken\n    at here\n',
  );
});

test('repeated lines and read requests are hidden, and failures are shown', async () => {
  const isShown = async (line: object) => (await shown([line])) !== '';
  const operator = { ...REQUEST, msg: 'operator request' };
  expect(await isShown(operator)).toBe(false);
  expect(await isShown({ ...operator, method: 'PATCH' })).toBe(true);
  expect(await isShown({ ...operator, level: 40, status: 503 })).toBe(true);
  const forwarded = { ...REQUEST, service: 'core', callerId: '4fXk20LmQa9z' };
  expect(await isShown(forwarded)).toBe(false);
  expect(await isShown({ ...forwarded, status: 500, level: 50 })).toBe(true);
  expect(await isShown({ ...forwarded, callerId: undefined })).toBe(true);
  expect(await isShown(REQUEST)).toBe(true);
});

test('a client cannot manipulate the terminal, and lines of other programs are unchanged', async () => {
  expect(await shown([{ ...REQUEST, path: '/v1/\u001b[2J\npets\u009b' }])).toContain(
    ' GET /v1/\u{fffd}[2J\u{fffd}pets\u{fffd} ',
  );
  expect(await shown(['{"a":', '3'])).toBe('{"a":\n3\n');
});
