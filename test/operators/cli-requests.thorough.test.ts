import { expect, test } from 'vitest';
import type { RequestsAnswer, RequestView } from '../../gateway/operators/api/answers.ts';
import { idOf } from '../support/api-key.ts';
import { CLI, ctl, ctlProcess, operatorOf } from '../support/ctl.ts';
import { faultyCore, okTo } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { ask, get, hashOf, operatorsRedis, statusOf } from '../support/operators.ts';
import { startProcess } from '../support/process.ts';
import { ownRedis } from '../support/redis-database.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** `ctl requests`, which lists recent requests. */

/** A request is recorded one event-loop turn after its answer. */
const recorded = (stack: Stack, id: string) =>
  expect
    .poll(async () => (await get<RequestsAnswer>(stack, `/requests?q=${id}`)).requests[0]?.status)
    .toBeGreaterThan(0);

const PATIENT = { timeout: 20_000 };

/** Runs `ctl requests --follow` until `stop` is called. `stop` sends Ctrl-C and expects exit code 0. */
function follow(stack: Stack, ...more: string[]) {
  const { child, out, err, ended } = ctlProcess(operatorOf(stack), ['requests', '--follow', ...more]);
  const stop = async () => {
    child.kill('SIGINT');
    expect((await ended).code).toBe(0);
  };
  return { out, err, stop };
}

test('requests are listed, found by key, status, code, text and time, and explained on demand', async () => {
  const stack = await startStack();
  const NAME = 'ACME zoo';
  const acme = await stack.issueKey({ name: 'acme zoo', minute: 1 });
  const other = await stack.issueKey({ name: 'other' });
  for (const id of ['a-served', 'a-refused']) await ask(stack, acme, id);
  await ask(stack, other, 'o-served');
  await ask(stack, undefined, 'stranger');
  await recorded(stack, 'stranger');
  await recorded(stack, 'o-served');
  const rows = async (...words: string[]) => {
    const { code, out, err } = await ctl(stack, 'requests', ...words);
    expect([words, code, err]).toEqual([words, 0, words[1] === NAME ? `Note: acme zoo is ${idOf(acme)}.\n` : '']);
    return out.trim().split('\n');
  };
  const idsOf = (lines: readonly string[]) => lines.slice(1).map((line) => line.split(/ +/).at(-1));

  const [head = '', ...all] = await rows();
  const titles = ['at', 'status', 'outcome', 'code', 'ms', 'key', 'name', 'address', 'request', 'id'];
  expect(head.split(/ {2,}/)).toEqual(titles);
  const rest = ['127.0.0.1', 'GET /v1/pets'];
  expect(all.map((line) => line.split(/ {2,}/).slice(1))).toEqual([
    ['401', 'malformed', 'unauthorized', expect.any(String), '-', '-', ...rest, 'stranger'],
    ['200', 'admitted', '-', expect.any(String), idOf(other), 'other', ...rest, 'o-served'],
    ['429', 'refused', 'rate_limit_exceeded', expect.any(String), idOf(acme), 'acme zoo', ...rest, 'a-refused'],
    ['200', 'admitted', '-', expect.any(String), idOf(acme), 'acme zoo', ...rest, 'a-served'],
  ]);
  expect(idsOf(await rows('--key', idOf(acme)))).toEqual(['a-refused', 'a-served']);
  expect(idsOf(await rows('--key', NAME))).toEqual(['a-refused', 'a-served']);
  expect(idsOf(await rows('--status', '4XX'))).toEqual(['stranger', 'a-refused']);
  expect(idsOf(await rows('--status', '2xx'))).toEqual(['o-served', 'a-served']);
  expect(idsOf(await rows('--text', 'SERVED', '--limit', '2'))).toEqual(['o-served', 'a-served']);
  expect(idsOf(await rows('--text', '/v1/pets'))).toHaveLength(4);
  expect(idsOf(await rows('--from', '10m', '--to', '2199-01-01T00:00:00Z'))).toHaveLength(4);
  expect(await rows('--from', '2199-01-01T00:00:00Z')).toEqual(['No recent request matches.']);

  const explained = await rows('--status', '4xx', '--why');
  expect(explained).toHaveLength(5);
  expect(explained[2]).toMatch(/^ {4}The request had no API key/);
  expect(explained[4]).toMatch(
    /^ {4}The key had used up its limit of 1 request per minute\..* Raise the limit of the key/,
  );
  expect(await rows('--why')).toHaveLength(7);

  const one = (await rows('--code', 'rate_limit_exceeded')).join('\n');
  expect(one).toMatch(/^id {16}a-refused$/m);
  expect(one).toMatch(/^response {10}429 rate_limit_exceeded, after [\d.]+ ms$/m);
  expect(one).toMatch(/^why {15}The key had used up its limit of 1 request per minute\./m);
  expect(one).toMatch(/^what to do {8}Raise the limit/m);
  expect(one).toMatch(new RegExp(`^key {15}${idOf(acme)} \\(acme zoo\\)$`, 'm'));
  expect(one).toMatch(/^retry at {10}\d{4}-\S+Z$/m);
  expect(one).toMatch(/^minute {12}0[.\d]* -> 0[.\d]* of 1$/m);
  expect(one).toMatch(/^time {14}decision [\d.]+ ms, waiting [\d.]+ ms$/m);
  expect((await rows('--text', 'a-served')).join('\n')).toMatch(
    /^time {14}decision \S+ ms, waiting \S+ ms, core \S+ ms, sending \S+ ms$/m,
  );

  const json = JSON.parse((await rows('--json', '--status', '429')).join('\n'));
  expect(json).toMatchObject({ requests: [{ requestId: 'a-refused', keyName: 'acme zoo' }], missing: [] });
});

test('ctl requests reads more than one page and counts the repetitions of a refusal', async () => {
  const stack = await startStack({ RECENT_REQUESTS: '1000' });
  const key = await stack.issueKey({ name: 'many', minute: 1_000, day: 10_000 });
  for (let at = 0; at < 230; at++) await ask(stack, key, `m-${at}`);
  await recorded(stack, 'm-229');
  const { out } = await ctl(stack, 'requests', '--limit', '220', '--json');
  const ids = (JSON.parse(out) as { requests: RequestView[] }).requests.map(({ requestId }) => requestId);
  expect([ids.length, new Set(ids).size, ids[0], ids.at(-1)]).toEqual([220, 220, 'm-229', 'm-10']);
  const loud = await stack.issueKey({ minute: 1 });
  for (let at = 0; at < 20; at++) await ask(stack, loud, `loud-${at}`);
  const { out: refused } = await ctl(stack, 'requests', '--key', idOf(loud), '--status', '429');
  expect(refused).toMatch(/ id +more\n.* {2}1[34]\n/);
});

test('--key finds a revoked key by its id or name; if given a whole key, it sends only the id', async () => {
  const stack = await startStack();
  const [revoked, key] = [await stack.issueKey({ name: 'gone away' }), await stack.issueKey()];
  await ask(stack, revoked, 'of-the-revoked');
  await stack.admin('DELETE', `/keys/${idOf(revoked)}`);
  expect((await ctl(stack, 'requests', '--key', idOf(revoked))).out).toMatch(/^id {16}of-the-revoked$/m);
  expect(await ctl(stack, 'requests', '--key', 'Gone away')).toMatchObject({
    ...{ code: 0, out: expect.stringMatching(/^id {16}of-the-revoked$/m) },
    err: `Note: the key Gone away was revoked. Its id was ${idOf(revoked)}.\n`,
  });
  const second = await stack.issueKey({ name: ' Gone away ' });
  await stack.admin('DELETE', `/keys/${idOf(second)}`);
  const { err } = await ctl(stack, 'requests', '--key', 'gone away');
  expect(err).toMatch(new RegExp(`2 revoked keys have the name.*\n.*\n.*${idOf(second)}.*\n.*${idOf(revoked)}`));
  await stack.issueKey({ name: '  blanks ' });
  expect(await ctl(stack, 'requests', '--key', '  blanks ')).toMatchObject({ code: 0 });
  const whole = await ctl(stack, 'requests', '--key', key);
  expect(whole).toMatchObject({ code: 0, err: expect.stringContaining('the secret was removed and not sent') });
  expect(JSON.stringify(stack.log)).not.toContain(key.slice(16));
});

test('while Redis hangs, --key with an id finds the requests and shows why a read failed; --key with a name asks for the id', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url });
  const key = await stack.issueKey({ name: 'acme' });
  await ask(stack, key, 'before-the-outage');
  server.pause();
  const askedAt = performance.now();
  expect(await ctl(stack, 'requests', '--key', 'acme')).toEqual({
    ...{ code: 1, out: '' },
    err: expect.stringMatching(/^Redis does not answer\. Names cannot be looked up now: use the id of the key\./),
  });
  expect(performance.now() - askedAt).toBeLessThan(8_000);
  await send(`${stack.gateway}/v1/limits?refusals=true`, { key, headers: { 'X-Request-Id': 'of-limits' } });
  const { code, out } = await ctl(stack, 'requests', '--key', idOf(key), '--why');
  expect([code, out]).toEqual([
    0,
    expect.stringMatching(/of-limits\n.*key's usage could not be read[\s\S]*before-the-outage/),
  ]);
  server.resume();
});

test('text from clients cannot manipulate a terminal', async () => {
  const { redis, fresh } = await operatorsRedis();
  const stack = await fresh();
  const key = await stack.issueKey();
  await redis.hset(hashOf(idOf(key)), 'name', 'evil\u001b[2J\nname');
  await redis.hdel(hashOf(idOf(key)), 'ok_secrets', 'ok_name');
  await ask(stack, key, 'e-1', '/v1/%1b%5b2J%9b');
  await ask(stack, key, 'e-2');
  await recorded(stack, 'e-2');
  for (const words of [[], ['--why'], ['--text', 'e-1']]) {
    const { out } = await ctl(stack, 'requests', ...words);
    expect(out).toContain('evil\u{fffd}[2J\u{fffd}name');
    expect(out).not.toMatch(/[^\P{Cc}\n]/u);
  }
  const followed = follow(stack);
  await expect.poll(followed.out, PATIENT).toContain('evil\u{fffd}[2J\u{fffd}name');
  await followed.stop();
  expect(followed.out()).not.toMatch(/[^\P{Cc}\n]/u);
});

test('--follow prints each new request once, oldest first, even if it is reported late, until Ctrl-C', async () => {
  const slowOne = Promise.withResolvers<void>();
  const core = await faultyCore(async (socket, head) => {
    if (head.includes('slow')) await slowOne.promise;
    socket.write(okTo(head));
  });
  const stack = await startStack({ CORE_URL: core });
  const key = await stack.issueKey({ name: 'followed' });
  for (let at = 0; at < 12; at++) await ask(stack, key, `before-${at}`);
  await recorded(stack, 'before-11');
  const started = follow(stack, '--key', 'followed');
  const lines = () => started.out().trim().split('\n').slice(1);
  const ids = () => lines().map((line) => line.split(/ +/).at(-1));
  const before = Array.from({ length: 10 }, (_, at) => `before-${at + 2}`);
  await expect.poll(ids, PATIENT).toEqual(before);
  const slow = ask(stack, key, 'slow', '/v1/pets?slow');
  for (const id of ['new-1', 'new-2']) await ask(stack, key, id);
  await ask(stack, await stack.issueKey(), 'of-another');
  await expect.poll(ids, PATIENT).toEqual([...before, 'new-1', 'new-2']);
  slowOne.resolve();
  await slow;
  await ask(stack, key, 'new-3');
  await expect.poll(() => ids().length, PATIENT).toBe(14);
  expect(ids().slice(12).toSorted()).toEqual(['new-3', 'slow']);
  await started.stop();
  expect(started.err()).toBe(`Note: followed is ${idOf(key)}.\n`);
});

test('--follow waits for a gateway that does not respond', async () => {
  const stack = await startStack();
  const started = follow(stack);
  await ask(stack, undefined, 'the-last-one');
  await expect.poll(started.out, PATIENT).toContain('the-last-one');
  await stack.stop();
  await expect.poll(started.err, PATIENT).toMatch(/^Note: No gateway answers at .+\n$/);
  await started.stop();
});

test('--follow with a tag shows only requests with keys that have that tag, and continues after a Redis outage', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url });
  const [key, other] = [await stack.issueKey({ tags: { customer: 'acme' } }), await stack.issueKey()];
  await ask(stack, other, 'of-another-1');
  const started = follow(stack, '--tag', 'customer=acme');
  await ask(stack, other, 'of-another-2');
  await ask(stack, key, 'before');
  await expect.poll(started.out, PATIENT).toContain('before');
  server.pause();
  await expect.poll(started.err, PATIENT).toMatch(/^Note: Redis .+\n$/);
  server.resume();
  await expect.poll(() => statusOf(stack, key), PATIENT).toBe(200);
  await ask(stack, other, 'of-another-3');
  await ask(stack, key, 'after');
  await expect.poll(started.out, PATIENT).toContain('after');
  await started.stop();
  expect(started.out()).not.toContain('of-another');
});

test('--follow --json prints one line per request and exits quietly when its reader exits', async () => {
  const stack = await startStack();
  const command = `${process.execPath} ${CLI} --json requests --follow | head -n 1`;
  const started = startProcess('bash', ['-o', 'pipefail', '-c', command], operatorOf(stack));
  const sending = setInterval(() => void ask(stack), 500);
  const ended = await started.ended.finally(() => clearInterval(sending));
  expect(ended).toMatchObject({ code: 0, err: '' });
  expect(JSON.parse(ended.out)).toMatchObject({ status: 401, outcome: 'malformed' });
});
