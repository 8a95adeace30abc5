import { listActivity } from './activity.ts';
import { backUp, restore } from './backup.ts';
import { noteBackup } from './backup-notes.ts';
import { liftBan, listBans, resetKey, setBan } from './bans.ts';
import { explainKey, explainRequest } from './decisions.ts';
import { checkAll } from './doctor.ts';
import { changeKey } from './key-changes.ts';
import { findKeys, listKeys, topKeys } from './key-list.ts';
import { createKey, getKey, reindexKeys, revokeKey } from './keys.ts';
import type { AdminRoute } from './operation.ts';
import { rollBack, showHistory } from './plan-changes.ts';
import { tryPlan } from './plan-try.ts';
import { changePlan, changePlans, showPlans } from './plans.ts';
import { listRequests } from './requests.ts';
import { addSecret, changeSecret, revokeSecret, rotateKey } from './secrets.ts';
import { createToken, listTokens, revokeToken, whoAmI } from './tokens.ts';
import { showMinutes, showTraffic } from './traffic.ts';
import { listUsage, showKeyUsage } from './usage.ts';

/** Reading needs the role viewer, anything else operator, unless `needs` says otherwise. */
export const ROUTES: readonly AdminRoute[] = [
  { name: 'showPlans', method: 'GET', path: '/plans', operation: showPlans },
  { name: 'showHistory', method: 'GET', path: '/plans/history', operation: showHistory },
  { name: 'rollBackPlans', method: 'POST', path: '/plans/rollback', operation: rollBack },
  { name: 'changePlans', method: 'PATCH', path: '/plans', operation: changePlans },
  { name: 'changePlan', method: 'PATCH', path: '/plans/{plan}', operation: changePlan },
  { name: 'tryPlan', method: 'POST', path: '/plans/{plan}/try', operation: tryPlan, needs: 'viewer' },
  { name: 'listKeys', method: 'GET', path: '/keys', operation: listKeys },
  { name: 'topKeys', method: 'GET', path: '/keys/top', operation: topKeys },
  { name: 'findKeys', method: 'GET', path: '/keys/find', operation: findKeys },
  { name: 'createKey', method: 'POST', path: '/keys', operation: createKey },
  { name: 'reindexKeys', method: 'POST', path: '/keys/reindex', operation: reindexKeys },
  { name: 'getKey', method: 'GET', path: '/keys/{id}', operation: getKey },
  { name: 'changeKey', method: 'PATCH', path: '/keys/{id}', operation: changeKey },
  { name: 'revokeKey', method: 'DELETE', path: '/keys/{id}', operation: revokeKey },
  { name: 'rotateKey', method: 'POST', path: '/keys/{id}/rotate', operation: rotateKey },
  { name: 'addSecret', method: 'POST', path: '/keys/{id}/secrets', operation: addSecret },
  { name: 'changeSecret', method: 'PATCH', path: '/keys/{id}/secrets/{secretId}', operation: changeSecret },
  { name: 'revokeSecret', method: 'DELETE', path: '/keys/{id}/secrets/{secretId}', operation: revokeSecret },
  { name: 'showKeyUsage', method: 'GET', path: '/keys/{id}/usage', operation: showKeyUsage },
  { name: 'explainKey', method: 'GET', path: '/keys/{id}/explain', operation: explainKey },
  { name: 'listRequests', method: 'GET', path: '/requests', operation: listRequests },
  { name: 'explainRequest', method: 'GET', path: '/decisions/{requestId}', operation: explainRequest },
  { name: 'setBan', method: 'PUT', path: '/keys/{id}/ban', operation: setBan },
  { name: 'liftBan', method: 'DELETE', path: '/keys/{id}/ban', operation: liftBan },
  { name: 'resetKey', method: 'POST', path: '/keys/{id}/reset', operation: resetKey },
  { name: 'listBans', method: 'GET', path: '/bans', operation: listBans },
  { name: 'listActivity', method: 'GET', path: '/activity', operation: listActivity },
  { name: 'whoAmI', method: 'GET', path: '/whoami', operation: whoAmI },
  { name: 'listTokens', method: 'GET', path: '/tokens', operation: listTokens },
  { name: 'createToken', method: 'POST', path: '/tokens', operation: createToken, needs: 'admin' },
  { name: 'revokeToken', method: 'DELETE', path: '/tokens/{id}', operation: revokeToken, needs: 'admin' },
  { name: 'showTraffic', method: 'GET', path: '/traffic', operation: showTraffic },
  { name: 'showMinutes', method: 'GET', path: '/traffic/minutes', operation: showMinutes },
  { name: 'doctor', method: 'GET', path: '/doctor', operation: checkAll },
  { name: 'listUsage', method: 'GET', path: '/usage', operation: listUsage },
  { name: 'backUp', method: 'GET', path: '/backup', operation: backUp },
  { name: 'noteBackup', method: 'POST', path: '/backups', operation: noteBackup },
  { name: 'restore', method: 'POST', path: '/restore', operation: restore, needs: 'admin' },
];
