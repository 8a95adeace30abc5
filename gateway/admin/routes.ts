import type { ServiceRoute } from '../../shared/service.ts';
import { createKey, getKey, listKeys, revokeKey } from './keys.ts';
import type { AdminParts } from './parts.ts';
import { changePlan, showPlans } from './plans.ts';

export const ROUTES: readonly ServiceRoute<AdminParts>[] = [
  { method: 'GET', path: '/plans', operation: showPlans },
  { method: 'PATCH', path: '/plans/{plan}', operation: changePlan },
  { method: 'GET', path: '/keys', operation: listKeys },
  { method: 'POST', path: '/keys', operation: createKey },
  { method: 'GET', path: '/keys/{id}', operation: getKey },
  { method: 'DELETE', path: '/keys/{id}', operation: revokeKey },
];
