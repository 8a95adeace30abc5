import type { ServiceRoute } from '../shared/http/service.ts';
import type { CoreDependencies } from './operation.ts';
import { changeOrder, createOrder, getOrder, listOrders } from './orders.ts';
import { changePet, createPet, getPet, listPets, removePet } from './pets.ts';

export const ROUTES: readonly ServiceRoute<CoreDependencies>[] = [
  { name: 'listPets', method: 'GET', path: '/v1/pets', operation: listPets },
  { name: 'createPet', method: 'POST', path: '/v1/pets', operation: createPet },
  { name: 'getPet', method: 'GET', path: '/v1/pets/{petId}', operation: getPet },
  { name: 'changePet', method: 'PATCH', path: '/v1/pets/{petId}', operation: changePet },
  { name: 'removePet', method: 'DELETE', path: '/v1/pets/{petId}', operation: removePet },
  { name: 'listOrders', method: 'GET', path: '/v1/store/orders', operation: listOrders },
  { name: 'createOrder', method: 'POST', path: '/v1/store/orders', operation: createOrder },
  { name: 'getOrder', method: 'GET', path: '/v1/store/orders/{orderId}', operation: getOrder },
  { name: 'changeOrder', method: 'PATCH', path: '/v1/store/orders/{orderId}', operation: changeOrder },
];
