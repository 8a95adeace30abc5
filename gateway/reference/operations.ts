import { ERRORS } from '../../shared/http/errors.ts';
import { MAX_IDEMPOTENCY_KEY_LENGTH, MAX_REQUEST_ID_LENGTH } from '../../shared/http/request-head.ts';
import { INT64_MAX, INT64_MIN } from '../../shared/schemas/int64.ts';
import { DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE } from '../../shared/schemas/page.ts';
import { type Content, type Header, nextPage, type Parameter, type Ref, refTo, type Schema } from './document.ts';
import { LIMITS, NEW_PET, ORDER, PET } from './schemas.ts';

/** The API as a whole. */
export const API = {
  title: 'Animal store',
  version: '1.0.0',
  summary:
    "Lists, adds and gets pets. Ids are 64-bit integers; some are beyond 2^53, where JavaScript's `JSON.parse` rounds.",
  // Each gateway serves the same file, so it names none of them.
  contact: { name: 'Animal store', url: 'https://store.example/docs/' },
  license: { name: 'MIT', identifier: 'MIT' },
};

/** Descriptions of the tags by name. */
export const TAGS = { pets: 'Pets.', store: 'Orders of pets.', limits: 'The limits of your key.' };

/** The details of an operation that the route table lacks. */
export interface About {
  readonly tag: keyof typeof TAGS;
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly (Parameter | Ref)[];
  readonly body?: Content;
  readonly success: {
    readonly status: number;
    readonly description: string;
    /** Undefined without a body, as with 204. */
    readonly content?: Content;
    readonly headers?: Readonly<Record<string, Header>>;
  };
  /** Its errors by status, besides the common ones. */
  readonly errors?: readonly number[];
  /** Whether the OpenAPI document disables this operation's try-it panel. */
  readonly cannotBeTried?: true;
}

/** Keeps all digits: a JavaScript number would be rounded to a value out of range. */
const exactly = (value: bigint): unknown =>
  // TypeScript's libraries do not have this yet.
  (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(String(value));

const ID: Schema = { type: 'integer', format: 'int64', minimum: exactly(INT64_MIN), maximum: exactly(INT64_MAX) };

const optional = (place: Parameter['in'], name: string, schema: Schema, description: string): Parameter => {
  return { name, in: place, required: false, description, schema };
};

const TEXT = { type: 'string', minLength: 1 };

/** Parameters of more than one operation. */
export const PARAMETERS: Readonly<Record<string, Parameter>> = {
  limit: optional(
    'query',
    'limit',
    { type: 'integer', minimum: 1, maximum: MAX_PAGE_SIZE, default: DEFAULT_PAGE_SIZE, examples: [DEFAULT_PAGE_SIZE] },
    'The maximum number of records to return.',
  ),
  after: optional(
    'query',
    'after',
    { ...ID, examples: [0] },
    'Returns only records with a greater id. The Link header contains the value for the next page. Of records that are ' +
      'created at the same time, one with a smaller id can appear later.',
  ),
  requestId: optional(
    'header',
    'X-Request-Id',
    { ...TEXT, maxLength: MAX_REQUEST_ID_LENGTH, examples: ['order-4711'] },
    'Identifies the request in the response and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other ' +
      'value is replaced by a new id.',
  ),
};

const json = (schema: string, example: unknown): Content => ({
  'application/json': { schema: refTo('schemas', schema), example },
});

const statusFilter = (schema: string, description: string): Parameter =>
  optional('query', 'status', refTo('schemas', schema), description);

const PAGE = [refTo('parameters', 'limit'), refTo('parameters', 'after')];
const EVERY = [refTo('parameters', 'requestId')];

/** Descriptions by the operation's name. */
export const OPERATIONS: Readonly<Record<string, About>> = {
  listPets: {
    tag: 'pets',
    summary: 'List pets',
    description: 'Returns pets by ascending id, one page at a time. Unknown parameters are ignored.',
    parameters: [...PAGE, statusFilter('PetStatus', 'Returns only pets with this status.'), ...EVERY],
    success: {
      status: 200,
      description: 'One page of pets.',
      content: json('Pets', [PET]),
      headers: { Link: nextPage('/v1/pets') },
    },
  },
  createPet: {
    tag: 'pets',
    summary: 'Add a pet',
    description: 'Adds a pet. With an `Idempotency-Key`, the request can be repeated without adding the pet twice.',
    parameters: [
      optional(
        'header',
        'Idempotency-Key',
        { ...TEXT, maxLength: MAX_IDEMPOTENCY_KEY_LENGTH, examples: ['8e03978e-40d5-43dd-bc93-6894a57f9324'] },
        'For 24 hours, the same key with the same body returns the first response again; with another body, it returns 409.',
      ),
      ...EVERY,
    ],
    body: json('NewPet', NEW_PET),
    success: { status: 201, description: 'The pet was added.', content: json('Pet', PET) },
    errors: [409, 413, 415],
  },
  getPet: {
    tag: 'pets',
    summary: 'Get a pet',
    description: 'This operation will be removed on 5 December 2030. Use GET /pets with the status filter.',
    parameters: [
      { name: 'petId', in: 'path', required: true, description: "The pet's id.", schema: { ...ID, examples: [1] } },
      ...EVERY,
    ],
    success: { status: 200, description: 'The pet.', content: json('Pet', PET) },
    errors: [404],
  },
  listOrders: {
    tag: 'store',
    summary: 'List orders',
    description: 'Returns orders by ascending id, one page at a time. Unknown parameters are ignored.',
    parameters: [...PAGE, statusFilter('OrderStatus', 'Returns only orders with this status.'), ...EVERY],
    success: {
      status: 200,
      description: 'One page of orders.',
      content: json('Orders', [ORDER]),
      headers: { Link: nextPage('/v1/store/orders') },
    },
    cannotBeTried: true,
  },
  getLimits: {
    tag: 'limits',
    summary: 'Get your limits',
    description:
      "Returns the key's plan, both of its limits and its usage. It costs the key nothing, and it works even when " +
      "the limits are used up and during a ban. It counts against the limit of the client's address, like a request " +
      'without a key. ' +
      'The `X-RateLimit-*` headers are those of the key.',
    parameters: [
      optional(
        'query',
        'refusals',
        { type: 'boolean', default: false, examples: [true] },
        'Adds the last refused requests with the key. This takes longer, because all gateways are queried.',
      ),
      ...EVERY,
    ],
    success: { status: 200, description: 'The limits of the key.', content: json('Limits', LIMITS) },
  },
};

/** Statuses that at most some operations return: 403 depends on the scope, and 405 is for no operation. */
const SPECIAL = new Set([403, 405, ...Object.values(OPERATIONS).flatMap(({ errors = [] }) => errors)]);
/** Errors that any operation may return. */
export const COMMON_ERRORS = Object.values(ERRORS)
  .map(({ status }) => status)
  .filter((status) => !SPECIAL.has(status));
