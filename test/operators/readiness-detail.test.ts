import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import type { DoctorAnswer, SeenFinding, TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { cleanUp } from '../support/clean-up.ts';
import { ctl } from '../support/ctl.ts';
import { faultyCore, OK } from '../support/faulty-core.ts';
import { type Answer, send } from '../support/http.ts';
import { get } from '../support/operators.ts';
import { startRedisServer } from '../support/redis.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** What /readyz says of a dependency that hangs, if nobody asks anything else. */

const PATIENT = { timeout: 15_000, interval: 200 };

const readyz = async ({ adminUrl }: Stack): Promise<Answer> => await send(`${adminUrl}/readyz`);

const polled = (stack: Stack) =>
  expect.poll(async () => ((await readyz(stack)).json as { detail?: string }).detail ?? 'well', PATIENT);

/** A core that can hang, and what it was asked. */
async function hangingCore() {
  const core = { url: '', hangs: false, heads: [] as string[] };
  core.url = await faultyCore((socket: Socket, head) => {
    core.heads.push(head.split('\r\n', 1)[0] ?? '');
    if (!core.hangs) socket.end(OK);
  });
  return core;
}

test('/readyz reports a hanging Redis without waiting for it and without a probe of the core', async () => {
  const [redis, core] = [await startRedisServer(), await hangingCore()];
  cleanUp(redis.stop);
  const stack = await startStack({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '250', CORE_URL: core.url });
  await polled(stack).toBe('well');
  redis.pause();
  cleanUp(() => redis.resume());
  await polled(stack).toMatch(/^redis .+ \((?:fault|unknown) since \d{4}-\S+Z\)\.$/);
  const askedAt = performance.now();
  const first = await readyz(stack);
  expect(performance.now() - askedAt).toBeLessThan(1_000);
  expect(first).toMatchObject({ status: 200, json: { status: 'ready' } });
  redis.resume();
  await polled(stack).toBe('well');
  expect(core.heads).toEqual([]);
});

test('/readyz reports one of several cores that hangs', async () => {
  const [hangs, works] = [await hangingCore(), await hangingCore()];
  const stack = await startStack({ CORE_URL: `${hangs.url},${works.url}` });
  await polled(stack).toBe('well');
  hangs.hangs = true;
  await polled(stack).toMatch(new RegExp(`^core ${hangs.url} does not answer \\(unknown since \\S+Z\\)\\.$`));
});

test('/readyz reports a single hanging core from an unanswered request until the next answer', async () => {
  const core = await hangingCore();
  const stack = await startStack({ CORE_URL: core.url, CORE_TIMEOUT_MS: '300' });
  const key = await stack.issueKey();
  core.hangs = true;
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(504);
  await polled(stack).toContain(`core ${core.url} does not answer (unknown since `);
  core.hangs = false;
  await expect.poll(async () => (await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(200);
  await polled(stack).toBe('well');
  expect(core.heads.filter((head) => !head.includes('/v1/pets'))).toEqual([]);
});

/** What the console's banner, /readyz, the doctor and ctl doctor report about a core. */
async function expectSameFinding(stack: Stack, about: string, status: string, found: string) {
  const shown = async () => (await get<TrafficAnswer>(stack, '/traffic')).health;
  await expect.poll(shown, PATIENT).toMatchObject({ about, status, found });
  const health = (await shown()) as SeenFinding;
  const { findings } = await get<DoctorAnswer>(stack, '/doctor');
  expect(findings.filter((one) => one.about === about)).toEqual([health]);
  expect(((await readyz(stack)).json as { detail?: string }).detail).toBe(
    `${about} ${found} (${status} since ${health.since}).`,
  );
  await shown();
  const since = status === 'unknown' ? `, since ${health.since}` : '';
  expect((await ctl(stack, 'doctor')).out).toMatch(new RegExp(`^${status} +${about} +${found}${since}$`, 'm'));
}

test('a hanging core is the same finding in the console, /readyz, the doctor and ctl doctor', async () => {
  const core = await hangingCore();
  const stack = await startStack({ CORE_URL: core.url });
  core.hangs = true;
  await expectSameFinding(stack, `core ${core.url}`, 'unknown', 'does not answer');
});

test('a core with another token, or whose API fails, is the same finding everywhere', async () => {
  const core = await startStack({ CORE_TOKEN: 'token-of-the-core-here' });
  const stack = await startStack({ CORE_URL: core.core, CORE_TOKEN: 'another-token-than-that' });
  const key = await stack.issueKey();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(502);
  // Nobody watches, so only the client's request has shown it.
  await polled(stack).toMatch(new RegExp(`^core ${core.core} rejects our token \\(fault since \\S+Z\\)\\.$`));
  await expectSameFinding(stack, `core ${core.core}`, 'fault', 'rejects our token');
  const broken = await faultyCore((socket, head) =>
    socket.end(head.startsWith('GET /readyz ') ? OK : OK.replace('200 OK', '500 Internal Server Error')),
  );
  const about = `core ${broken}`;
  await expectSameFinding(await startStack({ CORE_URL: broken }), about, 'fault', 'answers 500 to GET /v1/pets');
});
