import { Conflict } from '../../shared/domain-errors.ts';
import type { Order, OrderStatus } from '../../shared/schemas/order.ts';
import type { PetStatus } from '../../shared/schemas/pet.ts';
import { list } from './list.ts';
import { holdPet, setPetStatus } from './pet-queries.ts';
import type { Page } from './store.ts';
import { queryOne, type Transaction } from './transaction.ts';

/**
 * Operations on orders; each function is one transaction. An open order – placed or approved – keeps its pet pending.
 */

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
