import type { ServiceRoute } from '../../shared/service.ts';
import { liftBan, listBans, setBan } from './bans.ts';
import { explainKey, explainRequest } from './decisions.ts';
import { examine } from './doctor.ts';
import { changeKey, rotateKey } from './key-changes.ts';
import { createKey, getKey, listKeys, revokeKey } from './keys.ts';
import type { AdminParts } from './parts.ts';
import { rollBack, showHistory } from './plan-history.ts';
import { tryPlan } from './plan-try.ts';
import { changePlan, showPlans } from './plans.ts';
import { showTraffic } from './traffic.ts';
import { listUsage } from './usage.ts';

export const ROUTES: readonly ServiceRoute<AdminParts>[] = [
  { name: 'showPlans', method: 'GET', path: '/plans', operation: showPlans },
  { name: 'showHistory', method: 'GET', path: '/plans/history', operation: showHistory },
  { name: 'rollBackPlans', method: 'POST', path: '/plans/rollback', operation: rollBack },
  { name: 'changePlan', method: 'PATCH', path: '/plans/{plan}', operation: changePlan },
  { name: 'tryPlan', method: 'POST', path: '/plans/{plan}/try', operation: tryPlan },
  { name: 'listKeys', method: 'GET', path: '/keys', operation: listKeys },
  { name: 'createKey', method: 'POST', path: '/keys', operation: createKey },
  { name: 'getKey', method: 'GET', path: '/keys/{id}', operation: getKey },
  { name: 'changeKey', method: 'PATCH', path: '/keys/{id}', operation: changeKey },
  { name: 'revokeKey', method: 'DELETE', path: '/keys/{id}', operation: revokeKey },
  { name: 'rotateKey', method: 'POST', path: '/keys/{id}/rotate', operation: rotateKey },
  { name: 'explainKey', method: 'GET', path: '/keys/{id}/explain', operation: explainKey },
  { name: 'explainRequest', method: 'GET', path: '/decisions/{requestId}', operation: explainRequest },
  { name: 'setBan', method: 'PUT', path: '/keys/{id}/ban', operation: setBan },
  { name: 'liftBan', method: 'DELETE', path: '/keys/{id}/ban', operation: liftBan },
  { name: 'listBans', method: 'GET', path: '/bans', operation: listBans },
  { name: 'showTraffic', method: 'GET', path: '/traffic', operation: showTraffic },
  { name: 'examine', method: 'GET', path: '/doctor', operation: examine },
  { name: 'listUsage', method: 'GET', path: '/usage', operation: listUsage },
];
