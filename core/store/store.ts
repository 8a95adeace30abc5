import type { Order, OrderStatus } from '../../shared/order.ts';
import type { NewPet, Pet, PetStatus } from '../../shared/pet.ts';

/** Which part of a list is wanted: up to `limit` entries whose ids come after `after`, in ascending order of id. */
export interface Page<Status> {
  readonly limit: number;
  readonly after?: bigint | undefined;
  readonly status?: Status | undefined;
}

/**
 * The animals and orders, wherever they are kept. A promise that resolves is a promise kept: what `createPet` has
 * returned is on disk. Ids ascend and are never used twice.
 */
export interface Store {
  listPets(page: Page<PetStatus>): Promise<Pet[]>;
  createPet(pet: NewPet): Promise<Pet>;
  getPet(id: bigint): Promise<Pet | undefined>;
  listOrders(page: Page<OrderStatus>): Promise<Order[]>;
  close(): Promise<void>;
}
