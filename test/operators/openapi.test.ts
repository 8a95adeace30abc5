import { expect, test } from 'vitest';
import { describeOperations } from '../../gateway/operators/api/openapi.ts';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import type { Document } from '../../gateway/reference/document.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { knowOperators } from '../support/described-answers.ts';
import { send } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { startStack } from '../support/stack.ts';

/**
 * The OpenAPI document of the admin API. Every answer of an operators' listener that a test sees is compared with it,
 * here at least one success of each operation.
 */

test('the admin description is served to operators and has every operation', async () => {
  const stack = await startStack();
  expect((await send(`${stack.adminUrl}/admin/openapi.json`)).status).toBe(401);
  const document = (await stack.admin('GET', '/admin/openapi.json')).json as Document;
  expect(document).toEqual(JSON.parse(JSON.stringify(describeOperations(ROUTES))));
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => [operationId, method.toUpperCase(), path]),
  );
  expect(described.sort()).toEqual(ROUTES.map(({ name, method, path }) => [name, method, path]).sort());
});

test('an operation of each kind is described with its role, parameters and bodies', () => {
  const { paths, components } = describeOperations(ROUTES);
  const { get, post } = paths['/keys'] ?? {};
  expect(get?.description).toBe('Needs the role viewer.');
  expect(get?.parameters).toContainEqual({
    name: 'limit',
    in: 'query',
    required: false,
    description: 'The maximum number of entries.',
    schema: { type: 'integer', minimum: 1, maximum: 100, default: 100 },
  });
  expect(post?.description).toBe('Needs the role operator.');
  expect(post?.parameters.map((one) => 'name' in one && one.name)).toEqual(['author', 'reason']);
  expect(components.schemas.CreateKeyBody).toMatchObject({ required: ['name', 'plan'], additionalProperties: false });
  expect(Object.keys(post?.responses ?? {})).toEqual(
    expect.arrayContaining(['201', '400', '401', '403', '409', '413']),
  );
  expect(paths['/tokens']?.post?.description).toBe('Needs the role admin.');
});

test('each operation refuses a parameter that is not described, and names those that are', async () => {
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
  expect((await stack.admin('GET', '/activity')).json).toMatchObject({ activity: [] });
  const { json } = await stack.admin('GET', `/requests?${await stack.issueKey()}`);
  expect(json).toMatchObject({ message: expect.stringMatching(/^as_\w{12}_….* is not a parameter/) });
});

test('the answer of each operation is as described', async () => {
  const stack = await startStack();
  const called = new Set<string>();
  async function call<T = Record<string, unknown>>(
    name: string,
    params: Record<string, string> = {},
    body?: unknown,
    query = '',
  ) {
    const route = ROUTES.find((one) => one.name === name);
    const path = route?.path.replaceAll(/\{(\w+)\}/g, (_, parameter: string) => params[parameter] ?? '');
    const { status, json } = await stack.admin(route?.method ?? '', `${path}${query}`, body);
    expect([name, status < 300, json]).toEqual([name, true, json]);
    called.add(name);
    return json as T;
  }
  const { id, key } = await call<{ id: string; key: string }>(
    'createKey',
    {},
    { name: 'acme', plan: 'free', minute: 1 },
  );
  await send(`${stack.gateway}/v1/pets`, { key, headers: { 'x-request-id': 'of-acme' } });
  await send(`${stack.gateway}/v1/pets`, { key });
  await send(`${stack.gateway}/v1/pets`);
  const expiring = await stack.issueKey({ expiresAt: '2200-01-01T00:00:00Z' });
  for (const name of [
    'describeApi',
    'showPlans',
    'listKeys',
    'topKeys',
    'whoAmI',
    'showTraffic',
    'showMinutes',
    'doctor',
  ])
    await call(name);
  for (const name of ['getKey', 'showKeyUsage', 'explainKey']) await call(name, { id });
  await call('findKeys', {}, undefined, '?text=acm');
  await expect.poll(async () => (await call<{ requests: unknown[] }>('listRequests')).requests.length).toBe(3);
  await call('explainRequest', { requestId: 'of-acme' });
  await call('tryPlan', { plan: 'free' }, { minute: 1 });
  await call('changePlan', { plan: 'free' }, { minute: 70, reason: 'more' });
  await call('changePlans', {}, { plans: { pro: { mode: 'shadow' } } });
  await call('rollBackPlans', {}, {});
  await call('showHistory');
  await call('setBan', { id }, { seconds: 60, reason: 'loud' });
  await call('listBans');
  await call('liftBan', { id });
  await call('resetKey', { id });
  await call('changeKey', { id }, { name: 'acme zoo', minute: null });
  const { id: secretId } = await call<{ id: string }>('addSecret', { id }, { name: 'b', networks: ['10.0.0.0/8'] });
  await call('changeSecret', { id, secretId }, { scope: ['read'] });
  await call('revokeSecret', { id, secretId });
  await call('rotateKey', { id }, { graceSeconds: 60 });
  await call('revokeKey', { id: idOf(expiring) });
  await call('reindexKeys');
  const token = await call<{ id: string }>('createToken', {}, { name: 'ann', role: 'viewer' });
  await call('listTokens');
  await call('revokeToken', { id: token.id });
  await call('listActivity');
  await call('listUsage');
  await call('restore', {}, await call('backUp'));
  await call('noteBackup', {}, { keys: 1 });
  expect([...called].sort()).toEqual(ROUTES.map(({ name }) => name).sort());
});

test.for([
  ['a member that is not described', { role: 'admin', rank: 1 }, /additional properties/],
  ['a member that is missing', { name: 'ann' }, /required property 'role'/],
  ['a value that is not described', { role: 'root' }, /allowed values/],
] as const)('%s is detected by the check of answers', async ([, body, fault]) => {
  const url = await serveHttp((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'r1' }).end(JSON.stringify(body));
  });
  cleanUp(knowOperators(url));
  await expect(send(`${url}/whoami`)).rejects.toThrow(fault);
});
