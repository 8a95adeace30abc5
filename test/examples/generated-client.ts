import createClient from 'openapi-fetch';
import { patientFetch } from './patient-fetch.ts';
import type { paths } from './store-api.generated.d.ts';

/**
 * Lists the first 20 available pets with a client whose types come from the API's description. The generator needs
 * TypeScript 5, so run it in a folder that has no other version, and move the file here:
 *
 *     npx -p typescript@5 -p openapi-typescript@7 openapi-typescript $STORE_URL/v1/openapi.json --output store-api.generated.d.ts
 */

const { STORE_URL, API_KEY } = process.env;

const store = createClient<paths>({
  baseUrl: `${STORE_URL}/v1`,
  headers: { authorization: `Bearer ${API_KEY}` },
  fetch: patientFetch,
});

const { data: pets, error } = await store.GET('/pets', { params: { query: { status: 'available' } } });
if (error !== undefined) throw new Error(`${error.code}: ${error.message}`);
for (const { id, name } of pets) process.stdout.write(`${id} ${name}\n`);
