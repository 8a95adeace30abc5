import { z } from 'zod';
import { createToken, listTokens, NewToken, revokeToken, whoAmI } from './access.ts';
import { ActivityQuery, listActivity } from './activity.ts';
import * as answers from './answers.ts';
import { BackupMade, BackupPage, BackupQuery, backUp, noteBackup, RestoreQuery, restore } from './backup.ts';
import { checkAll } from './doctor.ts';
import { FindQuery, findKeys, KeysQuery, listKeys, TopQuery, topKeys } from './key-list.ts';
import {
  BansQuery,
  changeKey,
  createKey,
  getKey,
  KeyChanges,
  liftBan,
  listBans,
  NewBan,
  NewKey,
  NewReset,
  reindexKeys,
  resetKey,
  revokeKey,
  setBan,
} from './keys.ts';
import { type AdminOperation, type AdminRoute, parametersOf, refuseUnknown } from './operation.ts';
import {
  changePlan,
  changePlans,
  HistoryQuery,
  PlanChanges,
  Rollback,
  rollBack,
  showHistory,
  showPlans,
  TableChanges,
  Trial,
  TrialQuery,
  tryPlan,
} from './plans.ts';
import { DecisionsQuery, explainKey, explainRequest, listRequests, RequestsQuery } from './requests.ts';
import { addSecret, changeSecret, NewSecret, Rotation, revokeSecret, rotateKey, SecretChanges } from './secrets.ts';
import { showMinutes, showTraffic } from './traffic.ts';
import { listUsage, showKeyUsage, UsageQuery } from './usage.ts';

/**
 * The operations of the admin API. Only these rows are served, and the OpenAPI document is generated from them. Reading
 * needs the role viewer, anything else operator, unless `needs` says otherwise.
 */
export const ROUTES: readonly AdminRoute[] = [
  row(
    'GET /admin/openapi.json',
    'This description of the API',
    { describeApi },
    { answer: z.looseObject({ openapi: z.string() }) },
  ),
  row('GET /plans', 'The plans in force', { showPlans }, { answer: answers.Plans, isVersioned: true }),
  row(
    'GET /plans/history',
    'The last changes of plans, the newest first',
    { showHistory },
    { query: HistoryQuery, answer: answers.HistoryAnswer },
  ),
  row(
    'POST /plans/rollback',
    'Roll back the last change of plans',
    { rollBackPlans: rollBack },
    { body: Rollback, answer: answers.Plans, isVersioned: true, errors: [404] },
  ),
  row(
    'PATCH /plans',
    'Change several plans in one step',
    { changePlans },
    { body: TableChanges, answer: answers.Plans, isVersioned: true },
  ),
  row(
    'PATCH /plans/{plan}',
    'Change a plan',
    { changePlan },
    { body: PlanChanges, answer: answers.PlanView, isVersioned: true },
  ),
  row(
    'POST /plans/{plan}/try',
    'What other limits would have refused in the last hour',
    { tryPlan },
    { needs: 'viewer', query: TrialQuery, body: Trial, answer: answers.TrialAnswer },
  ),
  row('GET /keys', 'List keys', { listKeys }, { query: KeysQuery, answer: answers.KeysAnswer }),
  row(
    'GET /keys/top',
    'The keys with the most requests in the last minutes',
    { topKeys },
    { query: TopQuery, answer: answers.TopAnswer },
  ),
  row(
    'GET /keys/find',
    'Find keys by name, id or request id',
    { findKeys },
    { query: FindQuery, answer: answers.FoundAnswer },
  ),
  row(
    'POST /keys',
    'Issue a key; only this response shows it',
    { createKey },
    { body: NewKey, answer: answers.IssuedKey, creates: true },
  ),
  row(
    'POST /keys/reindex',
    'Put keys that are missing from the list of keys back into it',
    { reindexKeys },
    { answer: answers.ReindexAnswer },
  ),
  row('GET /keys/{id}', 'Get a key', { getKey }, { answer: answers.KeyView }),
  row('PATCH /keys/{id}', 'Change a key', { changeKey }, { body: KeyChanges, answer: answers.KeyView }),
  row('DELETE /keys/{id}', 'Revoke a key', { revokeKey }),
  row(
    'POST /keys/{id}/rotate',
    'Replace a secret of a key; only this response shows the new one',
    { rotateKey },
    { body: Rotation, answer: answers.IssuedKey, creates: true },
  ),
  row(
    'POST /keys/{id}/secrets',
    'Add a secret to a key; only this response shows it',
    { addSecret },
    { body: NewSecret, answer: answers.IssuedSecret, creates: true },
  ),
  row(
    'PATCH /keys/{id}/secrets/{secretId}',
    'Change a secret',
    { changeSecret },
    { body: SecretChanges, answer: answers.SecretView },
  ),
  row('DELETE /keys/{id}/secrets/{secretId}', 'Revoke a secret', { revokeSecret }),
  row(
    'GET /keys/{id}/usage',
    'The usage of a key by minute and by day',
    { showKeyUsage },
    { answer: answers.KeyUsageAnswer },
  ),
  row(
    'GET /keys/{id}/explain',
    'The last decisions on a key',
    { explainKey },
    { query: DecisionsQuery, answer: answers.ExplainAnswer },
  ),
  row(
    'GET /requests',
    'The last requests of all gateways, the newest first',
    { listRequests },
    { query: RequestsQuery, answer: answers.RequestsAnswer },
  ),
  row(
    'GET /decisions/{requestId}',
    'The decisions on a request',
    { explainRequest },
    { query: DecisionsQuery, answer: answers.DecisionsAnswer },
  ),
  row('PUT /keys/{id}/ban', 'Ban a key', { setBan }, { body: NewBan, answer: answers.KeyView }),
  row('DELETE /keys/{id}/ban', 'Lift a ban', { liftBan }, { answer: answers.KeyView }),
  row(
    'POST /keys/{id}/reset',
    'Lift a ban and fill both buckets',
    { resetKey },
    { body: NewReset, isBodyOptional: true, answer: answers.KeyView },
  ),
  row('GET /bans', 'The running bans', { listBans }, { query: BansQuery, answer: answers.BansAnswer }),
  row(
    'GET /activity',
    'The audit log, the newest entry first',
    { listActivity },
    { query: ActivityQuery, answer: answers.ActivityAnswer },
  ),
  row('GET /whoami', 'The name and role of the token', { whoAmI }, { answer: answers.CallerAnswer }),
  row('GET /tokens', 'The tokens of operators', { listTokens }, { answer: answers.TokensAnswer }),
  row(
    'POST /tokens',
    'Create a token; only this response shows it',
    { createToken },
    { needs: 'admin', body: NewToken, answer: answers.IssuedToken, creates: true },
  ),
  row('DELETE /tokens/{id}', 'Revoke a token', { revokeToken }, { needs: 'admin' }),
  row(
    'GET /traffic',
    'The requests of clients since the start, and the state of the gateway',
    { showTraffic },
    { answer: answers.TrafficAnswer },
  ),
  row('GET /traffic/minutes', 'The last hour by minute', { showMinutes }, { answer: answers.MinutesAnswer }),
  row('GET /doctor', 'Check what the gateway depends on', { doctor: checkAll }, { answer: answers.DoctorAnswer }),
  row('GET /usage', 'The usage of all keys by day', { listUsage }, { query: UsageQuery, answer: answers.UsageAnswer }),
  row(
    'GET /backup',
    'A page of all data that cannot be recreated',
    { backUp },
    { query: BackupQuery, answer: answers.BackupAnswer, errors: [409] },
  ),
  row(
    'POST /backups',
    'Note that a backup is complete',
    { noteBackup },
    { body: BackupMade, answer: answers.BackupNoted, creates: true },
  ),
  row(
    'POST /restore',
    'Restore what is missing from a page of a backup',
    { restore },
    { needs: 'admin', query: RestoreQuery, body: BackupPage, answer: answers.RestoreAnswer },
  ),
];

/** The document is generated when it is first requested. */
async function describeApi() {
  const { describeOperations } = await import('./openapi.ts');
  return { status: 200, body: describeOperations(ROUTES) };
}

type Facts = Omit<AdminRoute, 'method' | 'path' | 'summary' | 'name' | 'operation'>;

/** @param named the operation, by its name in metrics and in the document */
function row(
  at: string,
  summary: string,
  named: Readonly<Record<string, AdminOperation>>,
  facts: Facts = {},
): AdminRoute {
  const [method = '', path = ''] = at.split(' ');
  const [[name, operation]] = Object.entries(named) as [[string, AdminOperation]];
  const known = Object.keys(parametersOf({ method, ...facts }));
  const checked: AdminOperation = async (call) => {
    refuseUnknown(known, call.query);
    return await operation(call);
  };
  return { name, method, path, summary, operation: checked, ...facts };
}
