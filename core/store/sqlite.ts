import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import type { Order, OrderStatus } from '../../shared/order.ts';
import type { NewPet, Pet, PetStatus } from '../../shared/pet.ts';
import type { Page, Store } from './store.ts';

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS pets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    category_id INTEGER NOT NULL,
    status TEXT NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS pets_by_status ON pets (status, id);
  CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pet_id INTEGER NOT NULL REFERENCES pets (id),
    status TEXT NOT NULL,
    created_at TEXT NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS orders_by_status ON orders (status, id);
`;

const PET = 'id, name, category_id AS categoryId, status';
const ORDER = 'id, pet_id AS petId, status, created_at AS createdAt';
const BEFORE_ALL_IDS = -(2n ** 63n);
const BUSY_TIMEOUT_MS = 5_000;

/** One SQLite file. Integers are read as bigints, so that every int64 survives the way to disk and back. */
export class SqliteStore implements Store {
  readonly #database: DatabaseSync;
  readonly #insertPet: StatementSync;
  readonly #selectPet: StatementSync;
  readonly #pets: ListStatements;
  readonly #orders: ListStatements;

  /** @param path the file, made with its folder when missing; ':memory:' for none */
  constructor(path: string) {
    if (path !== ':memory:') mkdirSync(dirname(path), { recursive: true });
    this.#database = new DatabaseSync(path, { readBigInts: true, timeout: BUSY_TIMEOUT_MS });
    // FULL: a commit has reached the disk before it is acknowledged, so it survives a power cut as well as a crash.
    this.#database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;');
    this.#database.exec(SCHEMA);
    this.#insertPet = this.#database.prepare(
      `INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?) RETURNING ${PET}`,
    );
    this.#selectPet = this.#database.prepare(`SELECT ${PET} FROM pets WHERE id = ?`);
    this.#pets = listStatements(this.#database, PET, 'pets');
    this.#orders = listStatements(this.#database, ORDER, 'orders');
  }

  async listPets(page: Page<PetStatus>): Promise<Pet[]> {
    return list(this.#pets, page) as unknown as Pet[];
  }

  async createPet(pet: NewPet): Promise<Pet> {
    return this.#insertPet.get(pet.name, pet.categoryId, pet.status) as unknown as Pet;
  }

  async getPet(id: bigint): Promise<Pet | undefined> {
    return this.#selectPet.get(id) as Pet | undefined;
  }

  async listOrders(page: Page<OrderStatus>): Promise<Order[]> {
    return list(this.#orders, page) as unknown as Order[];
  }

  async close(): Promise<void> {
    this.#database.close();
  }
}

interface ListStatements {
  readonly all: StatementSync;
  readonly byStatus: StatementSync;
}

function listStatements(database: DatabaseSync, columns: string, table: string): ListStatements {
  return {
    all: database.prepare(`SELECT ${columns} FROM ${table} WHERE id > ? ORDER BY id LIMIT ?`),
    byStatus: database.prepare(`SELECT ${columns} FROM ${table} WHERE status = ? AND id > ? ORDER BY id LIMIT ?`),
  };
}

function list({ all, byStatus }: ListStatements, { limit, after = BEFORE_ALL_IDS, status }: Page<string>) {
  return status === undefined ? all.all(after, limit) : byStatus.all(status, after, limit);
}
