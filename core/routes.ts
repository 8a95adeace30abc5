import type { ServiceRoute } from '../shared/service.ts';
import type { CoreParts } from './operation.ts';
import { listOrders } from './orders.ts';
import { createPet, getPet, listPets } from './pets.ts';

export const ROUTES: readonly ServiceRoute<CoreParts>[] = [
  { method: 'GET', path: '/v1/pets', operation: listPets },
  { method: 'POST', path: '/v1/pets', operation: createPet },
  { method: 'GET', path: '/v1/pets/{petId}', operation: getPet },
  { method: 'GET', path: '/v1/store/orders', operation: listOrders },
];
