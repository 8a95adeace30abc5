import { Conflict } from '../../shared/domain-errors.ts';
import type { NewPet, Pet, PetChanges, PetStatus } from '../../shared/schemas/pet.ts';
import { list } from './list.ts';
import type { Page } from './store.ts';
import { query, queryOne, type Transaction } from './transaction.ts';

/** Operations on pets; each function is one transaction or a part of one. */

const PET = 'id, name, category_id AS "categoryId", status';

export const selectPets = (page: Page<PetStatus>): Transaction<readonly Pet[]> => list<Pet>('pets', PET, page);

export const selectPet = (id: bigint): Transaction<Pet | undefined> =>
  queryOne<Pet>(`SELECT ${PET} FROM pets WHERE id = $1`, id);

/** The pet, locked until the transaction ends. */
export const holdPet = (id: bigint): Transaction<Pet | undefined> =>
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

export function* setPetStatus(id: bigint, status: PetStatus): Transaction<void> {
  yield* query('UPDATE pets SET status = $1 WHERE id = $2', status, id);
}

function* refuseWhileOrdered(id: bigint, consequence: string): Transaction<void> {
  const sql = `SELECT id FROM orders WHERE pet_id = $1 AND status IN ('placed', 'approved') LIMIT 1`;
  const order = yield* queryOne<{ id: bigint }>(sql, id);
  if (order !== undefined) throw new Conflict(`Pet ${id} has the open order ${order.id}: ${consequence}.`);
}
