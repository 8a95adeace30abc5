import { z } from 'zod';
import { ERRORS, MAX_MESSAGE_LENGTH } from '../../shared/http/errors.ts';
import { Order, OrderStatus } from '../../shared/schemas/order.ts';
import { MAX_PAGE_SIZE } from '../../shared/schemas/page.ts';
import { NewPet, Pet, PetStatus } from '../../shared/schemas/pet.ts';
import { SCOPES } from '../limiter/credential.ts';
import { DAYS_KEPT, MAX_KEY_NAME_LENGTH } from '../limiter/key-record.ts';
import { PLAN_NAMES } from '../limiter/plans.ts';
import { type KeyRefusal, REFUSALS_SHOWN } from '../telemetry/key-refusals.ts';
import { refTo, type Schema } from './document.ts';

/** JSON Schemas of bodies: those with which the core validates pets and orders, the limits of a key, and Error. */

const CHECKED = z.registry<{ id: string }>();
for (const [id, schema] of Object.entries({ Pet, NewPet, PetStatus, Order, OrderStatus })) CHECKED.add(schema, { id });

export const PET = { id: 1, name: 'Rex', categoryId: 1, status: 'available' };
export const NEW_PET = { name: 'Rex', categoryId: 1, status: 'available' };
export const ORDER = { id: 1, petId: 1, status: 'placed', createdAt: '2026-11-21T12:00:00.000Z' };

/** An example of each schema. */
const EXAMPLES: Readonly<Record<string, unknown>> = {
  Pet: PET,
  NewPet: NEW_PET,
  PetStatus: 'available',
  Order: ORDER,
  OrderStatus: 'placed',
};

/** Options for writing schemas that client generators understand. */
export const FOR_GENERATORS = {
  unrepresentable: 'any',
  uri: (id: string) => refTo('schemas', id).$ref,
  override: ({ jsonSchema }: { jsonSchema: Record<string, unknown> }) => {
    // Generators assume that a member with a default is always present.
    delete jsonSchema.default;
    // Generators would omit a read-only member from requests.
    delete jsonSchema.readOnly;
    // The pattern repeats what `format` says, and generators for every language support `format`.
    if (jsonSchema.format === 'date-time' || jsonSchema.format === 'date') delete jsonSchema.pattern;
    if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
    if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    if (jsonSchema.format === 'int64') delete jsonSchema.anyOf;
  },
} as const;

/** All schemas, by name. */
export function schemas(): Readonly<Record<string, Schema>> {
  const { schemas: checked } = z.toJSONSchema(CHECKED, { ...FOR_GENERATORS, io: 'input' });
  const all = Object.entries(checked).map(([name, schema]) => [name, withExample(name, schema)] as const);
  return {
    ...Object.fromEntries(all),
    Pets: listOf('Pet', 'Pets, by ascending id.', PET),
    Orders: listOf('Order', 'Orders, by ascending id.', ORDER),
    // Only `refusals` can be missing.
    Limits: { ...limits, properties: { ...(limits.properties as object), refusals } },
    Error: errorSchema(Object.keys(ERRORS)),
  };
}

function withExample(name: string, { $schema, $id, properties, ...schema }: Schema): Schema {
  const example = EXAMPLES[name];
  const members = properties as Readonly<Record<string, Schema>> | undefined;
  return { ...schema, examples: [example], ...(members && { properties: withExamples(members, example) }) };
}

/** Gives each member its value in the example, unless the member has an example of its own or is a reference. */
const withExamples = (members: Readonly<Record<string, Schema>>, example: unknown): Readonly<Record<string, Schema>> =>
  Object.fromEntries(
    Object.entries(members).map(([name, member]) => {
      const value = (example as Record<string, unknown>)[name];
      return [name, '$ref' in member ? member : { examples: [value], ...member }];
    }),
  );

const listOf = (name: string, description: string, example: unknown): Schema => ({
  description,
  type: 'array',
  maxItems: MAX_PAGE_SIZE,
  items: refTo('schemas', name),
  examples: [[example]],
});

const NOT_FOUND = { code: 'not_found', message: ERRORS.not_found.message, status: 404 };

export const errorSchema = (codes: readonly string[]): Schema =>
  objectOf('The body of every response other than a success.', NOT_FOUND, {
    code: text('A machine-readable error code.', { enum: codes }),
    message: text('A human-readable message. The text may change.', { maxLength: MAX_MESSAGE_LENGTH }),
    status: { description: 'The HTTP status.', type: 'integer' },
  });

/** The response to GET /limits, which the gateway sends itself. */
export const LIMITS = {
  name: 'shop',
  plan: 'free',
  minute: { limit: 60, remaining: 59, reset: 1795262401, refillPerSecond: 1 },
  day: { limit: 1_000, remaining: 899, reset: 1795271127, refillPerSecond: 1_000 / 86_400 },
  waitSeconds: 0,
  strikesLeft: 300,
  ban: null,
  bannedUntil: null,
  scope: ['read', 'write'],
  expiresAt: null,
  usage: [{ day: '2026-11-21', admitted: 101, refused: 0 }],
};

const REFUSAL: KeyRefusal = {
  at: 1795262395,
  method: 'GET',
  path: '/v1/pets',
  code: 'rate_limit_exceeded',
  limit: 'minute',
  retryAt: 1795262397,
  repeated: 0,
};

const count = (description: string, minimum = 0): Schema => ({ description, type: 'integer', minimum });
const text = (description: string, more = {}): Schema => ({ description, type: 'string', ...more });

const nullable = (description: string, type: 'integer' | 'string', more = {}): Schema => ({
  description,
  type: [type, 'null'],
  ...more,
});

/** An object whose members are all required. */
const objectOf = (description: string, example: object, members: Readonly<Record<string, Schema>>): Schema => ({
  description,
  type: 'object',
  properties: withExamples(members, example),
  required: Object.keys(members),
  additionalProperties: false,
  examples: [example],
});

const bucket = (name: 'minute' | 'day'): Schema =>
  objectOf(`Requests per ${name}.`, LIMITS[name], {
    limit: count('The limit, which is the capacity of the bucket.', 1),
    remaining: count('Requests left.'),
    reset: count('Unix second at which the bucket is full again.'),
    refillPerSecond: { description: 'Requests added to the bucket per second.', type: 'number', exclusiveMinimum: 0 },
  });

const BAN = { until: 1795262700, retryAfter: 300 };

const ban = objectOf('The current ban.', BAN, {
  until: count('Unix second at which the ban ends.'),
  retryAfter: count('Seconds after which a request will be admitted, unless other programs take the token.', 1),
});

const refusals: Schema = {
  description:
    'The last requests with the key that were refused because of its limits, a ban or its scope, the newest first, ' +
    'as far as the gateways remember them. Null if they cannot be read now. Present only with `refusals=true`.',
  type: ['array', 'null'],
  maxItems: REFUSALS_SHOWN,
  items: objectOf('A refused request.', REFUSAL, {
    at: count('Unix second at which it arrived.'),
    method: text('Its method.'),
    path: text('Its path.'),
    code: text('Its error code.'),
    limit: nullable('The limit that refused it, or null.', 'string', { enum: ['minute', 'day', null] }),
    retryAt: nullable('Unix second from which it can be retried, or null.', 'integer', { minimum: 0 }),
    repeated: count('Similar refused requests that followed in the same minute.'),
  }),
  examples: [[REFUSAL]],
};

const limits = objectOf('The limits and usage of a key.', LIMITS, {
  name: text('The name of the key.', { maxLength: MAX_KEY_NAME_LENGTH }),
  plan: text('The plan of the key.', { enum: PLAN_NAMES }),
  minute: bucket('minute'),
  day: bucket('day'),
  waitSeconds: count(
    'Seconds until a request will be admitted, unless other programs take the token; 0 if one is admitted now.',
  ),
  strikesLeft: count('Further refusals before a ban becomes possible. Strikes expire over time.'),
  ban: { description: 'The current ban, or null.', anyOf: [ban, { type: 'null' }] },
  bannedUntil: nullable('Unix second at which the current ban ends, or null.', 'integer', { minimum: 0 }),
  scope: {
    description: 'What the key is allowed to do.',
    type: 'array',
    minItems: 1,
    maxItems: SCOPES.length,
    items: { type: 'string', enum: SCOPES },
  },
  expiresAt: nullable('When the key expires, in UTC, or null.', 'string', {
    format: 'date-time',
    examples: ['2027-11-21T12:00:00.000Z'],
  }),
  usage: {
    description:
      'Requests admitted and refused on each of the last 36 days (UTC), the oldest first. Days without requests are left out.',
    type: 'array',
    maxItems: DAYS_KEPT,
    items: objectOf('One day.', LIMITS.usage[0] as object, {
      day: text('The date.', { format: 'date' }),
      admitted: count('Requests that were admitted.'),
      refused: count('Requests that were refused by a limit.'),
    }),
  },
});
