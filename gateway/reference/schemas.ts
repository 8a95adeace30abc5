import { z } from 'zod';
import { ERRORS, MAX_MESSAGE_LENGTH } from '../../shared/http/errors.ts';
import { int64 } from '../../shared/schemas/int64.ts';
import { Order, OrderStatus } from '../../shared/schemas/order.ts';
import { MAX_PAGE_SIZE } from '../../shared/schemas/page.ts';
import { NewPet, Pet, PetStatus } from '../../shared/schemas/pet.ts';
import { refTo, type Schema } from './document.ts';
import { LIMITS, limitsSchema } from './limits-schema.ts';

export { LIMITS };

/** The shapes of bodies as JSON Schema: those with which the core checks them, and Error. */

const CHECKED = z.registry<{ id: string }>();
CHECKED.add(Pet, { id: 'Pet' })
  .add(NewPet, { id: 'NewPet' })
  .add(PetStatus, { id: 'PetStatus' })
  .add(Order, { id: 'Order' })
  .add(OrderStatus, { id: 'OrderStatus' });

export const PET = { id: 1, name: 'Rex', categoryId: 1, status: 'available' };
export const NEW_PET = { name: 'Rex', categoryId: 1, status: 'available' };
export const ORDER = { id: 1, petId: 1, status: 'placed', createdAt: '2026-11-21T12:00:00.000Z' };

const ABOUT: Readonly<Record<string, Schema>> = {
  Pet: { description: 'A pet.', examples: [PET] },
  NewPet: { description: 'A pet to add.', examples: [NEW_PET] },
  PetStatus: { description: 'The availability of a pet.', examples: ['available'] },
  Order: { description: 'An order for one pet.', examples: [ORDER] },
  OrderStatus: { description: 'The progress of an order.', examples: ['placed'] },
};

/** Descriptions by the member's name, which has the same meaning everywhere. */
const ABOUT_MEMBERS: Readonly<Record<string, Schema>> = {
  id: {
    description: 'Assigned by the service. It can be any 64-bit integer: read it as an exact integer or as text.',
    examples: [1],
  },
  name: { description: "The pet's name. Its length is counted in Unicode code points.", examples: ['Rex'] },
  categoryId: { description: 'The category to which the pet belongs.', examples: [1] },
  petId: { description: 'The ordered pet.', examples: [1] },
  status: {},
  createdAt: { description: 'When it was placed, in UTC.', examples: [ORDER.createdAt] },
};

/** Descriptions for one schema only. */
const ABOUT_MEMBERS_OF: Readonly<Record<string, Readonly<Record<string, Schema>>>> = {
  NewPet: { status: { description: 'The availability of the pet. Default: `available`.' } },
};

/** How schemas are written, so that generators of clients understand them. */
export const FOR_GENERATORS = {
  unrepresentable: 'any',
  uri: (id: string) => refTo('schemas', id).$ref,
  override: ({ zodSchema, jsonSchema }: { zodSchema: unknown; jsonSchema: Record<string, unknown> }) => {
    // Generators assume that a member with a default is always present.
    delete jsonSchema.default;
    // Generators would leave a member that is read-only out of requests.
    delete jsonSchema.readOnly;
    // The format says the same, and every language supports it.
    if (jsonSchema.format === 'date-time' || jsonSchema.format === 'date') delete jsonSchema.pattern;
    if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
    if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    if (zodSchema !== int64) return;
    delete jsonSchema.anyOf;
    Object.assign(jsonSchema, { type: 'integer', format: 'int64' });
  },
} as const;

/** All schemas, by name. */
export function schemas(): Readonly<Record<string, Schema>> {
  const { schemas: checked } = z.toJSONSchema(CHECKED, { ...FOR_GENERATORS, io: 'input' });
  const described = Object.entries(checked).map(([name, schema]) => [name, describe(name, schema)] as const);
  return {
    ...Object.fromEntries(described),
    Pets: listOf('Pet', 'Pets, by ascending id.', PET),
    Orders: listOf('Order', 'Orders, by ascending id.', ORDER),
    Limits: limitsSchema,
    Error: errorSchema(Object.keys(ERRORS)),
  };
}

function describe(name: string, { $schema, $id, properties, ...schema }: Schema): Schema {
  const about = ABOUT[name] ?? {};
  if (properties === undefined) return { ...about, ...schema };
  const members = Object.entries(properties as Record<string, Schema>).map(([member, inner]) => {
    return [member, { ...inner, ...ABOUT_MEMBERS[member], ...ABOUT_MEMBERS_OF[name]?.[member] }] as const;
  });
  return { ...about, ...schema, properties: Object.fromEntries(members) };
}

const listOf = (name: string, description: string, example: unknown): Schema => ({
  description,
  type: 'array',
  maxItems: MAX_PAGE_SIZE,
  items: refTo('schemas', name),
  examples: [[example]],
});

export const errorSchema = (codes: readonly string[]): Schema => ({
  description: 'The body of every response other than a success.',
  type: 'object',
  properties: {
    code: {
      description: 'What went wrong, in a form for programs.',
      type: 'string',
      enum: codes,
      examples: ['not_found'],
    },
    message: {
      description: 'What went wrong, in words for people. The text may change.',
      type: 'string',
      maxLength: MAX_MESSAGE_LENGTH,
      examples: [ERRORS.not_found.message],
    },
    status: { description: 'The HTTP status.', type: 'integer', examples: [404] },
  },
  required: ['code', 'message', 'status'],
  additionalProperties: false,
  examples: [{ code: 'not_found', message: ERRORS.not_found.message, status: 404 }],
});
