import { expect, test } from 'vitest';
import { post, send } from '../support/http.ts';
import { startStack, temporaryFolder } from '../support/stack.ts';

const stack = await startStack();
const pets = `${stack.core}/v1/pets`;

test('a name may have 200 characters, however many bytes they take', async () => {
  expect((await post(pets, { name: '🐈'.repeat(200), categoryId: 1 })).status).toBe(201);
});

test('pets are listed in ascending order, by limit and status, with a link to the next page', async () => {
  const fresh = await startStack();
  const list = `${fresh.core}/v1/pets`;
  for (let at = 1; at <= 25; at++)
    await post(list, { name: `pet ${at}`, categoryId: at, status: at % 2 ? 'sold' : 'pending' });
  const ids = (answer: { json: unknown }) => (answer.json as { id: number }[]).map(({ id }) => id);
  const first = await send(list);
  expect(ids(first)).toEqual(Array.from({ length: 20 }, (_, at) => at + 1));
  expect(first.headers.link).toBe('</v1/pets?after=20>; rel="next"');
  const second = await send(`${list}?after=20`);
  expect(ids(second)).toEqual([21, 22, 23, 24, 25]);
  expect(second.headers.link).toBeUndefined();
  const sold = await send(`${list}?status=sold&limit=3&after=4`);
  expect(ids(sold)).toEqual([5, 7, 9]);
  expect(sold.headers.link).toBe('</v1/pets?status=sold&limit=3&after=9>; rel="next"');
  expect(ids(await send(`${list}?limit=100`))).toHaveLength(25);
});

test('pets survive a restart', async () => {
  const DATA_DIR = await temporaryFolder();
  const before = await startStack({ DATA_DIR });
  const added = await post(`${before.core}/v1/pets`, { name: 'Rex', categoryId: 1 });
  await before.stop();
  const after = await startStack({ DATA_DIR });
  expect((await send(`${after.core}/v1/pets`)).text).toBe(`[${added.text}]`);
});

test('a core with a token refuses requests without it, except probes', async () => {
  const guarded = await startStack({ CORE_TOKEN: 'token-of-the-core' });
  expect((await send(`${guarded.core}/livez`)).status).toBe(200);
  expect((await send(`${guarded.core}/readyz`)).status).toBe(200);
  const refused = await send(`${guarded.core}/v1/pets`);
  expect([refused.status, refused.json]).toEqual([
    401,
    { code: 'unauthorized', message: expect.any(String), status: 401 },
  ]);
  expect((await send(`${guarded.core}/v1/pets`, { key: 'token-of-the-cor' })).status).toBe(401);
  expect((await send(`${guarded.core}/v1/pets`, { key: 'token-of-the-core' })).status).toBe(200);
  expect((await send(`${guarded.gateway}/v1/pets`, { key: await guarded.issueKey() })).status).toBe(200);
});
