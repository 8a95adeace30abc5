import { MAX_IDEMPOTENCY_KEY_LENGTH, MAX_REQUEST_ID_LENGTH } from '../../shared/http/headers.ts';
import { INT64_MAX, INT64_MIN } from '../../shared/schemas/int64.ts';
import { DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE } from '../../shared/schemas/page.ts';
import { type Content, type Header, type Parameter, type Ref, refTo, type Schema } from './document.ts';
import { nextPage } from './header-schemas.ts';
import { LIMITS, NEW_PET, ORDER, PET } from './schemas.ts';

/** What the route table does not say of an operation. */
export interface About {
  readonly tag: 'pets' | 'store' | 'limits';
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly (Parameter | Ref)[];
  readonly body?: Content;
  readonly success: {
    readonly status: number;
    readonly description: string;
    readonly content: Content;
    readonly headers?: Readonly<Record<string, Header>>;
  };
  /** Its errors by status, besides the common ones. */
  readonly errors: readonly number[];
  /** If false, the OpenAPI document disables this operation's try-it panel. */
  readonly canBeTried: boolean;
}

/** Errors of any operation. */
export const COMMON_ERRORS = [400, 401, 408, 414, 417, 429, 431, 500, 502, 503, 504, 505];

/** Exact digits: as a JavaScript number, the value would be rounded out of range. */
const exactly = (value: bigint): unknown => (JSON as unknown as RawJson).rawJSON(String(value));

/** Not yet in TypeScript's libraries. */
interface RawJson {
  rawJSON(text: string): unknown;
}

const ID: Schema = { type: 'integer', format: 'int64', minimum: exactly(INT64_MIN), maximum: exactly(INT64_MAX) };

/** Parameters of more than one operation. */
export const PARAMETERS = {
  limit: {
    name: 'limit',
    in: 'query',
    required: false,
    description: 'How many to give at most.',
    schema: {
      type: 'integer',
      minimum: 1,
      maximum: MAX_PAGE_SIZE,
      default: DEFAULT_PAGE_SIZE,
      examples: [DEFAULT_PAGE_SIZE],
    },
  },
  after: {
    name: 'after',
    in: 'query',
    required: false,
    description: 'Only those with a greater id: the next page, as the Link header gives it.',
    schema: { ...ID, examples: [0] },
  },
  requestId: {
    name: 'X-Request-Id',
    in: 'header',
    required: false,
    description:
      'An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other ' +
      'value is replaced by a new id, never refused.',
    schema: { type: 'string', minLength: 1, maxLength: MAX_REQUEST_ID_LENGTH, examples: ['order-4711'] },
  },
} satisfies Readonly<Record<string, Parameter>>;

const json = (schema: string, example: unknown): Content => ({
  'application/json': { schema: refTo('schemas', schema), example },
});

const statusFilter = (schema: string, description: string): Parameter => {
  return { name: 'status', in: 'query', required: false, description, schema: refTo('schemas', schema) };
};

const PAGE = [refTo('parameters', 'limit'), refTo('parameters', 'after')];
const EVERY = [refTo('parameters', 'requestId')];

/** By the operation's name. */
export const OPERATIONS: Readonly<Record<string, About>> = {
  listPets: {
    tag: 'pets',
    summary: 'List animals',
    description: 'Animals by ascending id, a page at a time. Parameters that are not known are ignored.',
    parameters: [...PAGE, statusFilter('PetStatus', 'Only animals of this status.'), ...EVERY],
    success: {
      status: 200,
      description: 'A page of the animals.',
      content: json('Pets', [PET]),
      headers: { Link: nextPage('/v1/pets') },
    },
    errors: [],
    canBeTried: true,
  },
  createPet: {
    tag: 'pets',
    summary: 'Add an animal',
    description: 'Adds an animal. With an `Idempotency-Key` it can be sent again without adding it twice.',
    parameters: [
      {
        name: 'Idempotency-Key',
        in: 'header',
        required: false,
        description: 'The same key and the same body get the first answer again for 24 hours; another body gets 409.',
        schema: {
          type: 'string',
          minLength: 1,
          maxLength: MAX_IDEMPOTENCY_KEY_LENGTH,
          examples: ['8e03978e-40d5-43dd-bc93-6894a57f9324'],
        },
      },
      ...EVERY,
    ],
    body: json('NewPet', NEW_PET),
    success: { status: 201, description: 'The animal was added.', content: json('Pet', PET) },
    errors: [409, 413, 415],
    canBeTried: true,
  },
  getPet: {
    tag: 'pets',
    summary: 'Get an animal',
    description: 'To be removed on 5 December 2030. Use GET /pets with the status filter.',
    parameters: [
      { name: 'petId', in: 'path', required: true, description: "The animal's id.", schema: { ...ID, examples: [1] } },
      ...EVERY,
    ],
    success: { status: 200, description: 'The animal.', content: json('Pet', PET) },
    errors: [404],
    canBeTried: true,
  },
  listOrders: {
    tag: 'store',
    summary: 'List orders',
    description: 'Orders by ascending id, a page at a time. Parameters that are not known are ignored.',
    parameters: [...PAGE, statusFilter('OrderStatus', 'Only orders of this status.'), ...EVERY],
    success: {
      status: 200,
      description: 'A page of the orders.',
      content: json('Orders', [ORDER]),
      headers: { Link: nextPage('/v1/store/orders') },
    },
    errors: [],
    canBeTried: false,
  },
  getLimits: {
    tag: 'limits',
    summary: 'See where you stand',
    description:
      "The key's plan and both of its limits. It costs the key nothing and is answered with empty limits and during a ban " +
      "too. Only the client's address pays for it, as for a request without a key. `X-RateLimit-*` are those of the key.",
    parameters: EVERY,
    success: { status: 200, description: 'Where the key stands.', content: json('Limits', LIMITS) },
    errors: [],
    canBeTried: true,
  },
};
