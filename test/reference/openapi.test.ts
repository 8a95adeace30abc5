import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Document, describeApi } from '../../gateway/reference/openapi.ts';
import { LIMITS, schemas } from '../../gateway/reference/schemas.ts';
import { parseJson } from '../../shared/schemas/json.ts';
import { NewPet } from '../../shared/schemas/pet.ts';
import { description } from '../support/description.ts';
import { anyCharacter } from '../support/fuzz.ts';
import { send } from '../support/http.ts';
import { schemaValidator } from '../support/json-schema.ts';
import { startStack } from '../support/stack.ts';

const api = describeApi();

test('the description has the operations of the interface document with the same content', () => {
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })),
  );
  expect(operations).toMatchObject([
    { operationId: 'listPets', method: 'get', path: '/pets' },
    { operationId: 'createPet', method: 'post', path: '/pets', requestBody: { required: true } },
    { operationId: 'getPet', method: 'get', path: '/pets/{petId}', deprecated: true },
    { operationId: 'listOrders', method: 'get', path: '/store/orders', 'x-try-it-out': false },
    { operationId: 'getLimits', method: 'get', path: '/limits' },
  ]);
  expect(operations.filter(({ deprecated }) => deprecated)).toHaveLength(1);
  expect(operations.filter((operation) => operation['x-try-it-out'] === false)).toHaveLength(1);
  expect(api.components.parameters.limit?.schema).toMatchObject({ minimum: 1, maximum: 100, default: 20 });
  const { Pet, NewPet: NewPetSchema, Error: ErrorSchema } = api.components.schemas;
  expect(NewPetSchema?.required).toEqual(['name', 'categoryId']);
  expect(Pet?.properties).toMatchObject({ id: { type: 'integer', format: 'int64' }, name: { type: 'string' } });
  expect(ErrorSchema?.required).toEqual(['code', 'message', 'status']);
});

/** The paths of all objects in a part of the document for which `isOne` returns true. */
function parts(value: unknown, isOne: (part: Record<string, unknown>) => boolean, at = ''): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const inner = Object.entries(value).flatMap(([name, member]) => parts(member, isOne, `${at}/${name}`));
  return isOne(value as Record<string, unknown>) ? [at, ...inner] : inner;
}

test('each body, header, parameter and member has an example', () => {
  const has = (part: Record<string, unknown>) => 'example' in part || 'examples' in part;
  const withoutExample = (part: Record<string, unknown>) =>
    !has(part) &&
    'schema' in part &&
    !has(part.schema as Record<string, unknown>) &&
    !('$ref' in (part.schema as object));
  expect(parts(api, withoutExample)).toEqual([]);
  expect(parts(api, (part) => 'schema' in part).length).toBeGreaterThan(30);
  const members = Object.values(api.components.schemas).flatMap(({ properties = {} }) =>
    Object.values(properties as object),
  );
  expect(members.filter((member) => !has(member) && !('$ref' in member))).toEqual([]);
  expect(Object.values(api.components.schemas).filter((schema) => !has(schema))).toEqual([]);
});

test('the schema of a new pet accepts and refuses the same bodies as the core', () => {
  const ajv = schemaValidator();
  ajv.addSchema({ $id: 'api', components: { schemas: schemas() } }, 'api', true, false);
  const isDescribed = ajv.compile({ $ref: 'api#/components/schemas/NewPet' });
  const name = fc.oneof(
    fc.string({ unit: anyCharacter, maxLength: 220, size: 'max' }),
    fc.constantFrom(...[200, 201].flatMap((length) => ['x'.repeat(length), '🐕'.repeat(length)])),
    fc.constantFrom('', 'a\u0000', 'a\u0085', '   ', ' \u00a0', ' a ', 'Rex\n'),
    fc.integer(),
  );
  const large = fc.integer({ min: -20, max: 20 }).map((e) => e * 1e18);
  const pet = fc.record(
    {
      name,
      categoryId: fc.oneof(fc.maxSafeInteger(), large, fc.double(), fc.string(), fc.constant(null)),
      status: fc.oneof(fc.constantFrom('available', 'pending', 'sold'), fc.string()),
      extra: fc.boolean(),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.oneof(pet, fc.jsonValue()), (value) => {
      const text = JSON.stringify(value);
      expect(isDescribed(JSON.parse(text))).toBe(NewPet.safeParse(parseJson(Buffer.from(text))).success);
    }),
    { numRuns: 2_000 },
  );
});

test('the gateway serves the description without a key, limited by address', async () => {
  const stack = await startStack();
  const answer = await send(`${stack.gateway}/v1/openapi.json`);
  expect(answer.status).toBe(200);
  expect(answer.headers).toMatchObject({ 'content-type': 'application/json', 'x-ratelimit-limit': '4000' });
  expect(answer.json).toEqual(JSON.parse(description));
});

test('lists and strings have the same bounds as in the code, and the contact has an absolute URL', () => {
  expect(api.components).toMatchObject({
    schemas: {
      Pets: { maxItems: 100 },
      Orders: { maxItems: 100 },
      Limits: { properties: { name: { maxLength: 100 }, scope: { minItems: 1, maxItems: 2 } } },
      NewPet: { properties: { name: { minLength: 1, maxLength: 200 } } },
      Error: { properties: { message: { maxLength: 1_000 } } },
    },
    headers: { 'X-Request-Id': { schema: { maxLength: 64 } } },
    parameters: { requestId: { schema: { minLength: 1, maxLength: 64 } } },
  });
  // The file is the same for every gateway, so its contact URL has a placeholder as its host.
  const { hostname } = new URL((api.info as { contact: { url: string } }).contact.url);
  expect(hostname).toMatch(/\.example$/);
});

test('each schema of the description is valid JSON Schema 2020-12', () => {
  const ajv = schemaValidator();
  const { schemas: bodies, headers, parameters } = (JSON.parse(description) as Document).components;
  const inner = [...Object.values(headers), ...Object.values(parameters)].map(({ schema }) => schema);
  expect([...Object.values(bodies), ...inner].filter((schema) => ajv.validateSchema(schema) !== true)).toEqual([]);
  expect(ajv.validateSchema({ type: 'text' })).toBe(false);
});

test('the example of the limits is about one day', () => {
  const dayOf = (seconds: number) => new Date(1_000 * seconds).toISOString().slice(0, 10);
  expect(LIMITS.usage.map(({ day }) => day)).toEqual([dayOf(LIMITS.minute.reset)]);
});
