import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ADMIN_TOKEN, startStack, temporaryFolder } from '../support/stack.ts';
import { type Generator, generated, typesOf } from './generated-clients.ts';

/** A third-party generator reads the description of the admin API from a running gateway. */

const stack = await startStack();
const file = join(await temporaryFolder(), 'openapi.json');
writeFileSync(file, (await stack.admin('GET', '/admin/openapi.json')).text);

const CLIENT: Generator = {
  name: 'openapi-typescript',
  generate: typesOf(file, 'api.d.ts'),
  use: `
import createClient from 'openapi-fetch';
import type { paths } from './api.d.ts';
const { STORE_URL = '', API_KEY } = process.env;
const admin = createClient<paths>({ baseUrl: STORE_URL, headers: { authorization: \`Bearer \${API_KEY}\` } });
const made = await admin.POST('/keys', { body: { name: 'of a client', plan: 'free', minute: 7 } });
const id: string = made.data?.id ?? '';
const shown = await admin.GET('/keys/{id}', { params: { path: { id } } });
const limit: number | undefined = shown.data?.buckets?.minute.limit;
const listed = await admin.GET('/keys', { params: { query: { plan: 'free', sort: 'name', limit: 10 } } });
const names: string[] | undefined = listed.data?.keys.map(({ name }) => name);
const changed = await admin.PATCH('/plans/{plan}', { params: { path: { plan: 'free' } }, body: { minute: 61 } });
const gone = await admin.DELETE('/keys/{id}', { params: { path: { id }, query: { reason: 'done' } } });
const missing = await admin.GET('/keys/{id}', { params: { path: { id } } });
// @ts-expect-error no plan has this name
await admin.POST('/keys', { body: { name: 'x', plan: 'gold' } });
console.log(JSON.stringify([limit, names, changed.data?.minute, gone.response.status, missing.error?.code]));`,
};

test('a generated client issues, reads, lists and revokes a key', async () => {
  const client = await generated(CLIENT, stack.adminUrl);
  expect(JSON.parse(await client(ADMIN_TOKEN))).toEqual([7, ['of a client'], 61, 204, 'not_found']);
});
