import { z } from 'zod';
import { createToken, listTokens, revokeToken, whoAmI } from './access.ts';
import { listActivity } from './activity.ts';
import { backUp, noteBackup, restore } from './backup.ts';
import { checkAll } from './doctor.ts';
import { findKeys, listKeys, topKeys } from './key-list.ts';
import { changeKey, createKey, getKey, liftBan, listBans, reindexKeys, resetKey, revokeKey, setBan } from './keys.ts';
import { type AdminOperation, type AdminRoute, operation, parametersOf, refuseUnknown } from './operation.ts';
import { changePlan, changePlans, rollBack, showHistory, showPlans, tryPlan } from './plans.ts';
import { explainKey, explainRequest, listRequests } from './requests.ts';
import { addSecret, changeSecret, revokeSecret, rotateKey } from './secrets.ts';
import { showMinutes, showTraffic } from './traffic.ts';
import { listUsage, showKeyUsage } from './usage.ts';

/** The document is generated when it is first requested. */
const describeApi = operation({ answer: z.looseObject({ openapi: z.string() }) }, async () =>
  (await import('./openapi.ts')).describeOperations(ROUTES),
);

/**
 * The operations of the admin API, from which the OpenAPI document is generated. By default, reading requires the
 * viewer role, and everything else the operator role.
 */
export const ROUTES: readonly AdminRoute[] = [
  row('GET /admin/openapi.json', 'This description of the API', { describeApi }),
  row('GET /plans', 'The plans in force', { showPlans }),
  row('GET /plans/history', 'The last changes to plans, newest first', { showHistory }),
  row('POST /plans/rollback', 'Roll back the last change to plans', { rollBackPlans: rollBack }),
  row('PATCH /plans', 'Change several plans in one step', { changePlans }),
  row('PATCH /plans/{plan}', 'Change a plan', { changePlan }),
  row('POST /plans/{plan}/try', 'What new limits would have refused in the last hour', { tryPlan }),
  row('GET /keys', 'List keys', { listKeys }),
  row('GET /keys/top', 'The keys with the most requests in the last few minutes', { topKeys }),
  row('GET /keys/find', 'Find keys by name, id or request id', { findKeys }),
  row('POST /keys', 'Issue a key; only this response shows it', { createKey }),
  row('POST /keys/reindex', 'Add working keys that are missing from the list of keys', { reindexKeys }),
  row('GET /keys/{id}', 'Get a key', { getKey }),
  row('PATCH /keys/{id}', 'Change a key', { changeKey }),
  row('DELETE /keys/{id}', 'Revoke a key', { revokeKey }),
  row('POST /keys/{id}/rotate', 'Replace a secret of a key; only this response shows the new one', { rotateKey }),
  row('POST /keys/{id}/secrets', 'Add a secret to a key; only this response shows it', { addSecret }),
  row('PATCH /keys/{id}/secrets/{secretId}', 'Change a secret', { changeSecret }),
  row('DELETE /keys/{id}/secrets/{secretId}', 'Revoke a secret', { revokeSecret }),
  row('GET /keys/{id}/usage', 'The usage of a key by minute and by day', { showKeyUsage }),
  row('GET /keys/{id}/explain', 'The last decisions on a key', { explainKey }),
  row('GET /requests', 'The last requests on all gateways, newest first', { listRequests }),
  row('GET /decisions/{requestId}', 'The decisions on a recent request', { explainRequest }),
  row('PUT /keys/{id}/ban', 'Ban a key', { setBan }),
  row('DELETE /keys/{id}/ban', 'Lift a ban', { liftBan }),
  row('POST /keys/{id}/reset', 'Lift a ban and fill both buckets', { resetKey }),
  row('GET /bans', 'The active bans', { listBans }),
  row('GET /activity', 'The audit log, newest entry first', { listActivity }),
  row('GET /whoami', 'The name and role of the token', { whoAmI }),
  row('GET /tokens', "The operators' tokens", { listTokens }),
  row('POST /tokens', 'Create a token; only this response shows it', { createToken }),
  row('DELETE /tokens/{id}', 'Revoke a token', { revokeToken }),
  row('GET /traffic', "The clients' requests since the gateway started, and the state of the gateway", { showTraffic }),
  row('GET /traffic/minutes', 'The last hour by minute', { showMinutes }),
  row('GET /doctor', 'Check what the gateway depends on', { doctor: checkAll }),
  row('GET /usage', 'The usage of all keys by day', { listUsage }),
  row('GET /backup', 'One page of a backup of all data that cannot be recreated', { backUp }),
  row('POST /backups', 'Record that a backup is complete', { noteBackup }),
  row('POST /restore', 'Restore the missing keys and plan fields of a backup page', { restore }),
];

/** @param named the operation, under its name in metrics and in the document */
function row(at: string, summary: string, named: Readonly<Record<string, AdminOperation>>): AdminRoute {
  const [method = '', path = ''] = at.split(' ');
  const [[name, { run, ...facts }]] = Object.entries(named) as [[string, AdminOperation]];
  const known = Object.keys(parametersOf({ method, ...facts }));
  return {
    ...facts,
    ...{ name, method, path, summary },
    async operation(call) {
      refuseUnknown(known, call.query);
      return await run(call);
    },
  };
}
