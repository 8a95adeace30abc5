import http from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, test } from 'vitest';
import { DATABASES } from '../support/databases.ts';
import { post, send } from '../support/http.ts';
import { scrape } from '../support/metrics.ts';
import { startStack } from '../support/stack.ts';

describe.for(DATABASES)('on %s', async ([, empty]) => {
  const stack = await startStack({ DATABASE_URL: await empty() });
  const pets = `${stack.core}/v1/pets`;
  const orders = `${stack.core}/v1/store/orders`;

  const patch = (url: string, body: unknown) => post(url, body, { method: 'PATCH' });
  const newPet = async (status?: string) =>
    ((await post(pets, { name: 'Rex', categoryId: 1, ...(status && { status }) })).json as { id: number }).id;
  const newOrder = async (petId: number) => ((await post(orders, { petId })).json as { id: number }).id;
  const statusOf = async (petId: number) => ((await send(`${pets}/${petId}`)).json as { status: string }).status;
  const conflict = (message: string) => ({ status: 409, json: { code: 'conflict', message, status: 409 } });

  test('a change to a pet affects only the given members', async () => {
    const id = await newPet();
    const max = { id, name: 'Max', categoryId: 1, status: 'available' };
    expect((await patch(`${pets}/${id}`, { name: 'Max' })).json).toEqual(max);
    const change = { categoryId: 7, status: 'sold' };
    expect((await patch(`${pets}/${id}`, change)).json).toEqual({ ...max, ...change });
    const message = 'The body is not valid: it changes nothing.';
    expect((await patch(`${pets}/${id}`, {})).json).toMatchObject({ code: 'invalid_request', message });
    expect((await patch(`${pets}/${id}`, { id: 5 })).status).toBe(400);
    expect((await patch(`${pets}/404404`, { name: 'Max' })).status).toBe(404);
  });

  test('a pet can be deleted once, and its id is never reused', async () => {
    const id = await newPet();
    expect(await send(`${pets}/${id}`, { method: 'DELETE' })).toMatchObject({ status: 204, text: '' });
    expect((await send(`${pets}/${id}`)).status).toBe(404);
    expect((await send(`${pets}/${id}`, { method: 'DELETE' })).status).toBe(404);
    expect(await newPet()).toBeGreaterThan(id);
  });

  test('an order reserves its pet, and completing the order sets the status of the pet', async () => {
    const petId = await newPet();
    const placed = await post(orders, { petId });
    const { id, createdAt } = placed.json as { id: number; createdAt: string };
    const order = (status: string) => ({ id, petId, status, createdAt });
    expect([placed.status, placed.json]).toEqual([201, order('placed')]);
    expect(Math.abs(Date.parse(createdAt) - Date.now())).toBeLessThan(5_000);
    expect(await statusOf(petId)).toBe('pending');
    expect((await send(`${orders}/${id}`)).json).toEqual(placed.json);
    expect((await patch(`${orders}/${id}`, { status: 'approved' })).json).toEqual(order('approved'));
    expect(await statusOf(petId)).toBe('pending');
    expect((await patch(`${orders}/${id}`, { status: 'delivered' })).status).toBe(200);
    expect(await statusOf(petId)).toBe('sold');
    expect((await send(`${orders}?status=delivered&limit=100`)).json).toContainEqual(order('delivered'));
    expect((await send(`${orders}?status=sold`)).status).toBe(400);
  });

  test('a cancelled order releases its pet', async () => {
    const petId = await newPet();
    const id = await newOrder(petId);
    expect((await patch(`${orders}/${id}`, { status: 'cancelled' })).status).toBe(200);
    expect(await statusOf(petId)).toBe('available');
    expect((await post(orders, { petId })).status).toBe(201);
  });

  test('the error names the rule that was violated', async () => {
    const petId = await newPet();
    const id = await newOrder(petId);
    const sold = await newPet('sold');
    const refusals = [
      [post(orders, { petId }), `Pet ${petId} is pending; only an available pet can be ordered.`],
      [post(orders, { petId: sold }), `Pet ${sold} is sold; only an available pet can be ordered.`],
      [post(orders, { petId: 404404 }), 'There is no pet 404404 to order.'],
      [
        patch(`${orders}/${id}`, { status: 'delivered' }),
        `Order ${id} is placed and cannot become delivered, only approved or cancelled.`,
      ],
      [
        patch(`${pets}/${petId}`, { status: 'sold' }),
        `Pet ${petId} has the open order ${id}: its status follows the order.`,
      ],
      [send(`${pets}/${petId}`, { method: 'DELETE' }), `Pet ${petId} has the open order ${id}: it cannot be deleted.`],
    ] as const;
    for (const [answer, message] of refusals) expect(await answer).toMatchObject(conflict(message));
    expect((await patch(`${pets}/${petId}`, { name: 'Max', status: 'pending' })).status).toBe(200);
    await patch(`${orders}/${id}`, { status: 'cancelled' });
    expect(await patch(`${orders}/${id}`, { status: 'approved' })).toMatchObject(
      conflict(`Order ${id} is cancelled and cannot become approved.`),
    );
    expect((await patch(`${orders}/404404`, { status: 'approved' })).status).toBe(404);
    expect((await send(`${pets}/${petId}`, { method: 'DELETE' })).status).toBe(204);
    expect((await send(`${orders}/${id}`)).status).toBe(200);
  });

  test.for(['{}', '{"petId":"1"}', '{"petId":1.5}', '{"petId":1,"status":"placed"}', '[]', ''])(
    'the order %s gets 400',
    async (body) => {
      expect((await post(orders, body)).status).toBe(400);
    },
  );

  test.for(['{}', '{"status":"gone"}', '{"status":"approved","petId":1}'])(
    'the change %s to an order gets 400',
    async (body) => {
      expect((await patch(`${orders}/1`, body)).status).toBe(400);
    },
  );

  test('exactly one of many concurrent orders for a pet succeeds', async () => {
    const petId = await newPet();
    const answers = await Promise.all(Array.from({ length: 20 }, () => post(orders, { petId })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, ...Array<number>(19).fill(409)]);
  });

  test('every int64 is stored exactly', async () => {
    for (const categoryId of ['-9223372036854775808', '9223372036854775807', '9007199254740993']) {
      const added = await post(pets, `{"name":"Rex","categoryId":${categoryId}}`);
      expect(added.text).toContain(`"categoryId":${categoryId},`);
      expect((await send(`${pets}/${(added.json as { id: number }).id}`)).text).toBe(added.text);
    }
  });

  test('SQL in a name is stored as text', async () => {
    const name = `Robert'); DROP TABLE pets;-- $1 ?1`;
    const { json } = await post(pets, { name, categoryId: 1 });
    expect(json).toMatchObject({ name });
  });

  test('a name may have 200 characters, however many bytes they take', async () => {
    expect((await post(pets, { name: '🐈'.repeat(200), categoryId: 1 })).status).toBe(201);
  });

  test('requests are counted by operation and status, with their duration', async () => {
    await send(`${pets}?limit=0`);
    const { text } = await send(`${stack.core}/metrics`);
    expect(text).toMatch(/^core_requests_total\{operation="listPets",status="400"\} [1-9]/m);
    expect(text).toMatch(/^core_requests_total\{operation="createOrder",status="409"\} [1-9]/m);
    expect(text).toMatch(/^core_request_duration_seconds_bucket\{operation="createPet",le="0.1"\} [1-9]/m);
  });
});

test('pets are listed in ascending order, by limit and status, with a link to the next page', async () => {
  const { core } = await startStack();
  const list = `${core}/v1/pets`;
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

test('internal operations are not reachable through the gateway', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ plan: 'business' });
  await post(`${stack.core}/v1/pets`, { name: 'Rex', categoryId: 1 });
  for (const [method, path, body] of [
    ['PATCH', '/v1/pets/1', '{"name":"Max"}'],
    ['DELETE', '/v1/pets/1', undefined],
    ['POST', '/v1/store/orders', '{"petId":1}'],
  ] as const) {
    const headers = { 'content-type': 'application/json' };
    const answer = await send(stack.gateway + path, { method, key, headers, ...(body && { body }) });
    expect([method, answer.status]).toEqual([method, 405]);
  }
  for (const path of ['/v1/store/orders/1', '/readyz', '/livez', '/metrics']) {
    expect((await send(stack.gateway + path, { key })).status).toBe(404);
  }
  expect((await send(`${stack.core}/v1/pets/1`)).json).toMatchObject({ name: 'Rex' });
  expect((await send(`${stack.core}/v1/store/orders`)).text).toBe('[]');
});

test('commits are counted, with their number of writes and their duration', async () => {
  const stack = await startStack();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  await Promise.all(
    Array.from({ length: 500 }, () => post(`${stack.core}/v1/pets`, { name: 'Rex', categoryId: 1 }, { agent })),
  );
  agent.destroy();
  const metrics = await scrape(stack.core);
  const writes = metrics.sum('core_commit_writes_sum') ?? 0;
  expect(writes).toBeGreaterThanOrEqual(500);
  expect(metrics.sum('core_commit_writes_count')).toBeLessThan(writes / 2);
  expect(metrics.sum('core_commit_seconds_count')).toBeGreaterThan(0);
});

test('store failures are counted, starting from 0, and violations of store rules are not', async () => {
  const stack = await startStack();
  const errors = async (kind: string) => (await scrape(stack.core)).sum('core_store_errors_total', { kind });
  expect([await errors('unavailable'), await errors('failed')]).toEqual([0, 0]);
  expect((await post(`${stack.core}/v1/store/orders`, { petId: 17 })).status).toBe(409);
  expect((await send(`${stack.core}/v1/pets/17`)).status).toBe(404);
  expect([await errors('unavailable'), await errors('failed')]).toEqual([0, 0]);

  const other = new DatabaseSync(`${stack.directory}/store.db`);
  other.exec('BEGIN EXCLUSIVE');
  const refused = await post(`${stack.core}/v1/pets`, { name: 'Rex', categoryId: 1 });
  other.exec('DROP TABLE orders; COMMIT');
  other.close();
  expect(refused.status).toBe(503);
  expect([await errors('unavailable'), await errors('failed')]).toEqual([1, 0]);

  expect((await send(`${stack.core}/v1/store/orders`)).status).toBe(500);
  expect([await errors('unavailable'), await errors('failed')]).toEqual([1, 1]);
});
