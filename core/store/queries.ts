import { Conflict } from '../../shared/domain-errors.ts';
import type { Order, OrderStatus } from '../../shared/schemas/order.ts';
import type { NewPet, Pet, PetChanges, PetStatus } from '../../shared/schemas/pet.ts';
import { type Page, query, queryOne, type Transaction } from './store.ts';

/**
 * The queries on pets and orders. Each function is one transaction or a part of one. An open order – placed or
 * approved – keeps its pet pending.
 */

const PET = 'id, name, category_id AS "categoryId", status';

export const selectPets = (page: Page<PetStatus>): Transaction<readonly Pet[]> => list<Pet>('pets', PET, page);

export const selectPet = (id: bigint): Transaction<Pet | undefined> =>
  queryOne<Pet>(`SELECT ${PET} FROM pets WHERE id = $1`, id);

/** The pet, locked until the transaction ends. */
const holdPet = (id: bigint): Transaction<Pet | undefined> =>
  queryOne<Pet>(`SELECT ${PET} FROM pets WHERE id = $1 FOR UPDATE`, id);

export function* insertPet({ name, categoryId, status }: NewPet): Transaction<Pet> {
  const sql = `INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING ${PET}`;
  return (yield* queryOne<Pet>(sql, name, categoryId, status)) as Pet;
}

/** @throws {Conflict} if an open order determines the status */
export function* updatePet(id: bigint, changes: PetChanges): Transaction<Pet | undefined> {
  const pet = yield* holdPet(id);
  if (pet === undefined) return undefined;
  const { name = pet.name, categoryId = pet.categoryId, status = pet.status } = changes;
  if (status !== pet.status) yield* refuseWhileOrdered(id, 'its status follows the order');
  const sql = `UPDATE pets SET name = $1, category_id = $2, status = $3 WHERE id = $4 RETURNING ${PET}`;
  return yield* queryOne<Pet>(sql, name, categoryId, status, id);
}

/** Returns false if there is no such pet. @throws {Conflict} while an order for it is open */
export function* deletePet(id: bigint): Transaction<boolean> {
  if ((yield* holdPet(id)) === undefined) return false;
  yield* refuseWhileOrdered(id, 'it cannot be deleted');
  yield* query('DELETE FROM pets WHERE id = $1', id);
  return true;
}

function* setPetStatus(id: bigint, status: PetStatus): Transaction<void> {
  yield* query('UPDATE pets SET status = $1 WHERE id = $2', status, id);
}

function* refuseWhileOrdered(id: bigint, consequence: string): Transaction<void> {
  const sql = `SELECT id FROM orders WHERE pet_id = $1 AND status IN ('placed', 'approved') LIMIT 1`;
  const order = yield* queryOne<{ id: bigint }>(sql, id);
  if (order !== undefined) throw new Conflict(`Pet ${id} has the open order ${order.id}: ${consequence}.`);
}

const ORDER = 'id, pet_id AS "petId", status, created_at AS "createdAt"';

interface OrderRow extends Omit<Order, 'createdAt'> {
  /** Unix time in milliseconds. */
  readonly createdAt: bigint;
}

const NEXT: Readonly<Record<OrderStatus, readonly OrderStatus[]>> = {
  placed: ['approved', 'cancelled'],
  approved: ['delivered', 'cancelled'],
  delivered: [],
  cancelled: [],
};

/** The pet's status after its order is closed. */
const PET_AFTER: Readonly<Partial<Record<OrderStatus, PetStatus>>> = { delivered: 'sold', cancelled: 'available' };

export function* selectOrders(page: Page<OrderStatus>): Transaction<readonly Order[]> {
  return (yield* list<OrderRow>('orders', ORDER, page)).map(toOrder);
}

export function* selectOrder(id: bigint): Transaction<Order | undefined> {
  const row = yield* queryOne<OrderRow>(`SELECT ${ORDER} FROM orders WHERE id = $1`, id);
  return row && toOrder(row);
}

/** @throws {Conflict} unless the pet is available */
export function* placeOrder(petId: bigint, now: number): Transaction<Order> {
  const pet = yield* holdPet(petId);
  if (pet === undefined) throw new Conflict(`There is no pet ${petId} to order.`);
  if (pet.status !== 'available')
    throw new Conflict(`Pet ${petId} is ${pet.status}; only an available pet can be ordered.`);
  yield* setPetStatus(petId, 'pending');
  const sql = `INSERT INTO orders (pet_id, status, created_at) VALUES ($1, 'placed', $2) RETURNING ${ORDER}`;
  return toOrder((yield* queryOne<OrderRow>(sql, petId, now)) as OrderRow);
}

/** @throws {Conflict} for a step that the order's status does not allow */
export function* moveOrder(id: bigint, to: OrderStatus): Transaction<Order | undefined> {
  const order = yield* queryOne<OrderRow>(`SELECT ${ORDER} FROM orders WHERE id = $1 FOR UPDATE`, id);
  if (order === undefined) return undefined;
  const next = NEXT[order.status];
  if (!next.includes(to)) throw new Conflict(`Order ${id} is ${order.status} and cannot become ${to}${hint(next)}.`);
  const petStatus = PET_AFTER[to];
  if (petStatus !== undefined) yield* setPetStatus(order.petId, petStatus);
  const sql = `UPDATE orders SET status = $1 WHERE id = $2 RETURNING ${ORDER}`;
  return toOrder((yield* queryOne<OrderRow>(sql, to, id)) as OrderRow);
}

const hint = (next: readonly OrderStatus[]): string => (next.length === 0 ? '' : `, only ${next.join(' or ')}`);

const toOrder = (row: OrderRow): Order => ({ ...row, createdAt: new Date(Number(row.createdAt)).toISOString() });

const BEFORE_ALL_IDS = -(2n ** 63n);

/** SQLite plans a query again whenever the parameter of a plain LIMIT is bound. An expression avoids that. */
const limited = (parameter: string) => `LIMIT ${parameter} + 0`;

/** A page of a table with the primary key `id` and an index on (status, id). */
function* list<R>(table: string, columns: string, page: Page<string>): Transaction<readonly R[]> {
  const { limit, after = BEFORE_ALL_IDS, status } = page;
  if (status === undefined) {
    return yield* query<R>(`SELECT ${columns} FROM ${table} WHERE id > $1 ORDER BY id ${limited('$2')}`, after, limit);
  }
  const sql = `SELECT ${columns} FROM ${table} WHERE status = $1 AND id > $2 ORDER BY id ${limited('$3')}`;
  return yield* query<R>(sql, status, after, limit);
}

/** Reads as little as possible from each table that requests need. */
export function* readTables(): Transaction<void> {
  yield* selectPets({ limit: 1 });
  yield* selectOrders({ limit: 1 });
  yield* query('SELECT key, fingerprint, created_at, status, answer FROM idempotency LIMIT 1');
}
