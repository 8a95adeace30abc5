import { selectOrders } from './order-queries.ts';
import { selectPets } from './pet-queries.ts';
import { query, type Transaction } from './transaction.ts';

/** Reads as little as possible from each table that serving needs. */
export function* readTables(): Transaction<void> {
  yield* selectPets({ limit: 1 });
  yield* selectOrders({ limit: 1 });
  yield* query('SELECT key, fingerprint, created_at, status, answer FROM idempotency LIMIT 1');
}
