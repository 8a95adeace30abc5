import type { ServiceRoute } from '../../shared/service.ts';
import { createKey, getKey, listKeys, revokeKey } from './keys.ts';
import type { AdminParts } from './parts.ts';
import { changePlan, showPlans } from './plans.ts';

export const ROUTES: readonly ServiceRoute<AdminParts>[] = [
  { name: 'showPlans', method: 'GET', path: '/plans', operation: showPlans },
  { name: 'changePlan', method: 'PATCH', path: '/plans/{plan}', operation: changePlan },
  { name: 'listKeys', method: 'GET', path: '/keys', operation: listKeys },
  { name: 'createKey', method: 'POST', path: '/keys', operation: createKey },
  { name: 'getKey', method: 'GET', path: '/keys/{id}', operation: getKey },
  { name: 'revokeKey', method: 'DELETE', path: '/keys/{id}', operation: revokeKey },
];
