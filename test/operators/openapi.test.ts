import { expect, test } from 'vitest';
import type { RequestsAnswer } from '../../gateway/operators/api/answers.ts';
import { describeOperations } from '../../gateway/operators/api/openapi.ts';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import type { Document } from '../../gateway/reference/openapi.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { knowServices } from '../support/described-answers.ts';
import { send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { ask, get } from '../support/operators.ts';
import { startStack } from '../support/stack.ts';

/**
 * The OpenAPI document of the admin API. Every answer that a test receives from an operators' listener is compared
 * with it.
 */

test('the OpenAPI document of the admin API is served to operators and contains every operation', async () => {
  const stack = await startStack();
  expect((await send(`${stack.adminUrl}/admin/openapi.json`)).status).toBe(401);
  const document = await get<Document>(stack, '/admin/openapi.json');
  expect(document).toEqual(JSON.parse(JSON.stringify(describeOperations(ROUTES))));
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => [operationId, method.toUpperCase(), path]),
  );
  expect(described.sort()).toEqual(ROUTES.map(({ name, method, path }) => [name, method, path]).sort());
});

test('an operation of each kind is described with its role, parameters and bodies', () => {
  const { paths, components } = describeOperations(ROUTES);
  const { get, post } = paths['/keys'] ?? {};
  expect(get?.description).toBe('Needs the viewer role.');
  expect(get?.parameters).toContainEqual({
    name: 'limit',
    in: 'query',
    required: false,
    description: 'The maximum number of entries.',
    schema: { type: 'integer', minimum: 1, maximum: 100, default: 100 },
  });
  const offset = get?.parameters.find((one) => 'name' in one && one.name === 'offset');
  expect(offset).toMatchObject({ schema: { type: ['integer', 'string'], default: 0 } });
  expect(post?.description).toBe('Needs the operator role.');
  expect(post?.parameters.map((one) => 'name' in one && one.name)).toEqual(['author', 'reason']);
  expect(components.schemas.CreateKeyBody).toMatchObject({ required: ['name', 'plan'], additionalProperties: false });
  expect(Object.keys(post?.responses ?? {})).toEqual(
    expect.arrayContaining(['201', '400', '401', '403', '409', '413']),
  );
  expect(paths['/tokens']?.post?.description).toBe('Needs the admin role.');
});

test('each operation refuses an undescribed parameter and names those that it accepts', async () => {
  const stack = await startStack();
  const { paths } = describeOperations(ROUTES);
  for (const { method, path } of ROUTES) {
    const described = paths[path]?.[method.toLowerCase()]?.parameters ?? [];
    const known = described.flatMap((one) => ('in' in one && one.in === 'query' ? [one.name] : []));
    const { status, json } = await stack.admin(method, `${path.replaceAll(/\{\w+\}/g, 'free')}?stauts=429`);
    const others = known.length === 0 ? 'It accepts none.' : `It accepts ${known.join(', ')}.`;
    const message = `stauts is not a parameter of this operation. ${others}`;
    expect([method, path, status, json]).toEqual([method, path, 400, { code: 'invalid_parameter', message, status }]);
  }
  expect(await get(stack, '/activity')).toMatchObject({ activity: [] });
  const { json } = await stack.admin('GET', `/requests?${await stack.issueKey()}`);
  expect(json).toMatchObject({ message: expect.stringMatching(/^as_\w{12}_….* is not a parameter/) });
});

/** activity.test.ts calls all write operations. */
test('each read operation answers as described', async () => {
  const stack = await startStack();
  const key = await stack.issueKey({ name: 'acme', minute: 1 });
  const id = idOf(key);
  await stack.issueKey({ expiresAt: '2200-01-01T00:00:00Z' });
  await stack.admin('POST', `/keys/${id}/secrets`, { name: 'b', networks: ['10.0.0.0/8'], scope: ['read'] });
  await stack.admin('PATCH', '/plans/free', { minute: 70, reason: 'more' });
  await stack.admin('POST', '/tokens', { name: 'ann', role: 'viewer' });
  for (const [sender, requestId] of [
    [key, 'of-acme'],
    [key, 'refused'],
    [undefined, 'without-a-key'],
  ] as const)
    await ask(stack, sender, requestId);
  await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 60, reason: 'loud' });
  await expect.poll(async () => (await get<RequestsAnswer>(stack, '/requests')).requests.length).toBe(3);
  for (const { name, path } of ROUTES.filter(({ method }) => method === 'GET')) {
    const filled = path.replaceAll(
      /\{(\w+)\}/g,
      (_, parameter: string) => ({ id, requestId: 'of-acme' })[parameter] ?? '',
    );
    const { status, json } = await stack.admin('GET', filled + (name === 'findKeys' ? '?text=acm' : ''));
    expect([name, status, json]).toEqual([name, 200, expect.anything()]);
  }
});

/** drift.test.ts has the other kinds of drift. */
test('an answer of the admin API with an undescribed member is detected', async () => {
  const body = JSON.stringify({ role: 'admin', rank: 1 });
  const url = await serveHttp((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'r1' }).end(body);
  });
  cleanUp(knowServices({ admin: url }));
  await expect(send(`${url}/whoami`)).rejects.toThrow(/additional properties/);
});
