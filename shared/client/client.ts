import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { int64, parseInt64 } from '../schemas/int64.ts';
import { faultsOf } from '../schemas/must.ts';
import { NewOrder, Order, OrderMove, type OrderStatus } from '../schemas/order.ts';
import { MAX_PAGE_SIZE } from '../schemas/page.ts';
import { NewPet, Pet, PetChanges, type PetStatus } from '../schemas/pet.ts';
import {
  type CallOptions,
  openTransport,
  readAnswer,
  type StoreAnswer,
  type StoreClientOptions,
  StoreError,
} from './transport.ts';

/** The typed client for internal services that call the core directly. */

export { type CallOptions, type StoreClientOptions, StoreError, type StoreErrorCode } from './transport.ts';

export interface CreateOptions extends CallOptions {
  /** Identifies a create request for a day: the same key gets the same response. By default, each call has its own. */
  readonly idempotencyKey?: string | undefined;
}

/** Ids are read as bigint. A caller may also pass an exact number. */
export type Id = z.input<typeof int64>;

export interface Filter<Status> {
  readonly status?: Status | undefined;
}

export interface PageOptions<Status> extends Filter<Status> {
  /** 1 to 100; the core's default is 20. */
  readonly limit?: number | undefined;
  /** Entries after this id: the `next` of the previous page. */
  readonly after?: Id | undefined;
}

/** A page of pets. `next` is present if there are more. */
export interface PetPage {
  readonly pets: readonly Pet[];
  readonly next?: bigint | undefined;
}

export interface OrderPage {
  readonly orders: readonly Order[];
  readonly next?: bigint | undefined;
}

export type StoreClient = ReturnType<typeof createStoreClient>;

const PETS = '/v1/pets';
const ORDERS = '/v1/store/orders';

/** A newer core may return members that this client does not know. They are dropped. */
const KnownPet = Pet.strip();
const KnownOrder = Order.strip();

const IdempotencyKey = z.string().regex(/^[ !#-[\]-~]{1,255}$/, {
  error: 'idempotencyKey must have 1 to 255 printable ASCII characters other than " and \\',
});

/**
 * Creates a client for the core at `url` with its own connections; one per process is enough. Every method throws only
 * `StoreError`. GETs and POSTs are retried up to twice if the connection breaks or the core responds with 502, 503 or
 * 504. Other methods are retried only if nothing can have reached the core.
 * @throws for a URL that is not a plain origin, a token that is not a valid header value, or a limit below one
 */
export function createStoreClient(options: StoreClientOptions) {
  const { call, close } = openTransport(options);

  async function create<S extends z.ZodType>(schema: S, path: string, body: unknown, options: CreateOptions = {}) {
    const idempotencyKey = checked(IdempotencyKey, options.idempotencyKey ?? randomUUID());
    return readAnswer(schema, await call({ method: 'POST', path, body, idempotencyKey }, options));
  }

  async function list<S extends z.ZodType>(schema: S, path: string, page: PageOptions<string>, options?: CallOptions) {
    const answer = await call({ method: 'GET', path: path + queryOf(page) }, options);
    return { entries: readAnswer(z.array(schema), answer), next: nextOf(answer) };
  }

  async function* walk<S extends z.ZodType>(schema: S, path: string, filter: Filter<string>, options?: CallOptions) {
    let after: bigint | undefined;
    do {
      const { entries, next } = await list(schema, path, { ...filter, after, limit: MAX_PAGE_SIZE }, options);
      yield* entries;
      after = next;
    } while (after !== undefined);
  }

  return {
    /** A page of the pets, by ascending id. */
    async listPets(page: PageOptions<PetStatus> = {}, options?: CallOptions): Promise<PetPage> {
      const { entries: pets, next } = await list(KnownPet, PETS, page, options);
      return { pets, next };
    },

    /** All pets, by ascending id, read page by page. The timeout applies to each page. */
    pets(filter: Filter<PetStatus> = {}, options?: CallOptions): AsyncGenerator<Pet, void, undefined> {
      return walk(KnownPet, PETS, filter, options);
    },

    async createPet(pet: z.input<typeof NewPet>, options?: CreateOptions): Promise<Pet> {
      return await create(KnownPet, PETS, checked(NewPet, pet), options);
    },

    /** @throws {StoreError} `not_found` */
    async getPet(id: Id, options?: CallOptions): Promise<Pet> {
      return readAnswer(KnownPet, await call({ method: 'GET', path: pathOf(PETS, id) }, options));
    },

    /** Changes the given members only. @throws {StoreError} `not_found`; `conflict` while an order is open */
    async changePet(id: Id, changes: z.input<typeof PetChanges>, options?: CallOptions): Promise<Pet> {
      const body = checked(PetChanges, changes);
      return readAnswer(KnownPet, await call({ method: 'PATCH', path: pathOf(PETS, id), body }, options));
    },

    /** @throws {StoreError} `not_found`; `conflict` while an order is open */
    async removePet(id: Id, options?: CallOptions): Promise<void> {
      await call({ method: 'DELETE', path: pathOf(PETS, id) }, options);
    },

    /** A page of the orders, by ascending id. */
    async listOrders(page: PageOptions<OrderStatus> = {}, options?: CallOptions): Promise<OrderPage> {
      const { entries: orders, next } = await list(KnownOrder, ORDERS, page, options);
      return { orders, next };
    },

    /** All orders, by ascending id, read page by page. The timeout applies to each page. */
    orders(filter: Filter<OrderStatus> = {}, options?: CallOptions): AsyncGenerator<Order, void, undefined> {
      return walk(KnownOrder, ORDERS, filter, options);
    },

    /** Orders a pet, which becomes pending. @throws {StoreError} `conflict` unless the pet is available */
    async createOrder(order: z.input<typeof NewOrder>, options?: CreateOptions): Promise<Order> {
      return await create(KnownOrder, ORDERS, checked(NewOrder, order), options);
    },

    /** @throws {StoreError} `not_found` */
    async getOrder(id: Id, options?: CallOptions): Promise<Order> {
      return readAnswer(KnownOrder, await call({ method: 'GET', path: pathOf(ORDERS, id) }, options));
    },

    /** Changes the status of an order. @throws {StoreError} `not_found`; `conflict` if the change is not allowed */
    async changeOrder(id: Id, move: z.input<typeof OrderMove>, options?: CallOptions): Promise<Order> {
      const body = checked(OrderMove, move);
      return readAnswer(KnownOrder, await call({ method: 'PATCH', path: pathOf(ORDERS, id), body }, options));
    },

    /** Finishes the calls in progress and closes the connections. Later calls fail with `aborted`. */
    close,
  };
}

/** Checks a value before it is sent: a number above 2^53 may have lost digits, which the core could not detect. */
function checked<S extends z.ZodType>(schema: S, value: z.input<S>, name?: string): z.output<S> {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  throw new StoreError('invalid_request', `The request is not valid: ${faultsOf(error, name)}.`, { cause: error });
}

const pathOf = (path: string, id: Id): string => `${path}/${checked(int64, id, 'id')}`;

function queryOf({ limit, after, status }: PageOptions<string>): string {
  const query = new URLSearchParams();
  if (limit !== undefined) query.set('limit', String(limit));
  if (after !== undefined) query.set('after', String(checked(int64, after, 'after')));
  if (status !== undefined) query.set('status', status);
  return query.size === 0 ? '' : `?${query}`;
}

/** Where the next page starts, from the Link header (RFC 8288). */
function nextOf({ status, headers: { link } }: StoreAnswer): bigint | undefined {
  const target = /<([^>]*)>\s*;\s*rel="?next"?/.exec(String(link))?.[1];
  if (target === undefined) return undefined;
  const after = parseInt64(new URLSearchParams(target.split('?')[1]).get('after') ?? '');
  if (after === undefined)
    throw new StoreError('invalid_answer', `The link to the next page is invalid: ${target}`, { status });
  return after;
}
