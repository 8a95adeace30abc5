import { selectOrders } from './orders.ts';
import { selectPets } from './pets.ts';
import { query, type Transaction } from './transaction.ts';

/** What serving asks of the tables, of each as little as there is. */
export function* readTables(): Transaction<void> {
  yield* selectPets({ limit: 1 });
  yield* selectOrders({ limit: 1 });
  yield* query('SELECT key, fingerprint, created_at, status, answer FROM idempotency LIMIT 1');
}
