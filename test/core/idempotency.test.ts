import { describe, expect, test } from 'vitest';
import { forgetAnswers } from '../../core/store/idempotency.ts';
import { query } from '../../core/store/store.ts';
import { idOf } from '../support/api-key.ts';
import { DATABASES, openStore } from '../support/databases.ts';
import { post, send } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

const DAY_MS = 24 * 3_600 * 1_000;

describe.for(DATABASES)('on %s', async ([, empty]) => {
  const url = await empty();
  const stack = await startStack({ DATABASE_URL: url });
  const pets = `${stack.core}/v1/pets`;
  const rex = { name: 'Rex', categoryId: 9_007_199 };
  const withKey = (key: string | string[]) => ({ headers: { 'idempotency-key': key } });
  const count = async () => ((await send(`${pets}?limit=100`)).json as unknown[]).length;

  test('a request repeated with its idempotency key and body gets the first response and creates no pet', async () => {
    const before = await count();
    const first = await post(pets, rex, withKey('"k1"'));
    const again = await post(pets, ' { "categoryId": 9007199, "name": "R\\u0065x" } ', withKey('k1'));
    expect([first.status, again.status, again.text]).toEqual([201, 201, first.text]);
    expect(await count()).toBe(before + 1);
  });

  test('concurrent requests with the same idempotency key get the same response and create one pet', async () => {
    const before = await count();
    const answers = await Promise.all(Array.from({ length: 25 }, () => post(pets, rex, withKey('k2'))));
    const [created] = answers.filter(({ status }) => status === 201);
    expect([...new Set(answers.map(({ status, text }) => `${status} ${text}`))]).toEqual([`201 ${created?.text}`]);
    expect(await count()).toBe(before + 1);
  });

  test('an idempotency key that is used again with another body or operation is a conflict', async () => {
    await post(pets, rex, withKey('k3'));
    const message = 'This Idempotency-Key was used for another request.';
    for (const answer of [
      await post(pets, { ...rex, name: 'Max' }, withKey('k3')),
      await post(`${stack.core}/v1/store/orders`, { petId: 1 }, withKey('k3')),
    ]) {
      expect([answer.status, answer.json]).toEqual([409, { code: 'conflict', message, status: 409 }]);
    }
  });

  test('a refusal by a store rule is also stored as the response', async () => {
    const sold = ((await post(pets, { ...rex, status: 'sold' })).json as { id: number }).id;
    const order = () => post(`${stack.core}/v1/store/orders`, { petId: sold }, withKey('k4'));
    const first = await order();
    expect(first.status).toBe(409);
    await post(`${pets}/${sold}`, { status: 'available' }, { method: 'PATCH' });
    expect(await order()).toMatchObject({ status: 409, text: first.text });
  });

  test.for([
    ['too long', 'k'.repeat(256)],
    ['empty', ''],
    ['an empty string', '""'],
    ['given twice', ['a', 'b']],
  ] as const)('an idempotency key that is %s gets 400', async ([, key]) => {
    const answer = await post(pets, rex, withKey(key as string));
    expect([answer.status, answer.json]).toEqual([400, expect.objectContaining({ code: 'invalid_request' })]);
  });

  test('a request with an invalid body does not use up its idempotency key', async () => {
    expect((await post(pets, { name: 'Rex' }, withKey('k5'))).status).toBe(400);
    expect((await post(pets, rex, withKey('k5'))).status).toBe(201);
  });

  test('the response for an idempotency key survives a restart and is forgotten after a day', async () => {
    const first = await post(pets, rex, withKey('k6'));
    const restarted = await startStack({ DATABASE_URL: url });
    expect((await post(`${restarted.core}/v1/pets`, rex, withKey('k6'))).text).toBe(first.text);
    const store = await openStore(url);
    const known = async () =>
      (await store.read(() => query('SELECT key FROM idempotency WHERE key = $1', ':k6'))).length;
    await store.write(() => forgetAnswers(Date.now() + DAY_MS - 60_000));
    expect(await known()).toBe(1);
    await store.write(() => forgetAnswers(Date.now() + DAY_MS + 60_000));
    expect(await known()).toBe(0);
    await store.close();
    expect((await post(pets, rex, withKey('k6'))).text).not.toBe(first.text);
  });

  test('through the gateway, the idempotency keys of different clients do not collide', async () => {
    const [one, two] = [await stack.issueKey(), await stack.issueKey()];
    const through = (key: string, caller?: string) =>
      post(`${stack.gateway}/v1/pets`, rex, {
        key,
        headers: { 'idempotency-key': 'k7', ...(caller && { 'x-caller-id': caller }) },
      });
    const first = await through(one);
    expect((await through(one)).text).toBe(first.text);
    expect((await through(two)).text).not.toBe(first.text);
    expect((await through(two, idOf(one))).text).not.toBe(first.text);
  });
});
