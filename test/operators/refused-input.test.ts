import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { startStack } from '../support/stack.ts';

/** Requests that the admin API refuses, each with the reported fault. */

const stack = await startStack();
const ID = idOf(await stack.issueKey());
const KEY = `/keys/${ID}`;

type Row = readonly [method: string, path: string, body: unknown, message: string];

const bodies = (method: string, path: string, ...rows: readonly (readonly [body: unknown, message: string])[]): Row[] =>
  rows.map(([body, message]) => [method, path, body, message]);

const queries = (path: string, ...rows: readonly (readonly [query: string, message: string])[]): Row[] =>
  rows.map(([query, message]) => ['GET', `${path}?${query}`, undefined, message]);

const NO_PLACE = 'offset must be the number of keys to skip, up to 999999999, or the `next` of a previous response.';
const NO_TAG = 'tag must be the name and value of a tag, such as customer=acme.';
const NO_SUMS = 'by must be day, key or tag:<name>, such as tag:customer.';
const NOT_NEAR = 'near must be a whole number from 1 to 100.';
const NO_NEXT = 'after must be the `next` of a previous response.';
const NETWORKS = 'networks must contain addresses, or blocks';
const BACKWARDS = 'from=2026-11-02T00:00:00Z&to=2026-11-01T00:00:00Z';

const ROWS: readonly Row[] = [
  ...bodies(
    'POST',
    '/keys',
    [{ name: 'a', plan: 'free', expiresAt: '2020-01-01T00:00:00Z' }, 'must be in the future'],
    [{ name: 'a', plan: 'free', expiresAt: '9999-12-31T00:00:00Z' }, 'must be in the future, before 2255'],
    [{ name: 'a', plan: 'free', expiresAt: 'soon' }, 'must be an RFC 3339 time like 2026-11-25T14:05:00Z'],
  ),
  ...bodies(
    'PATCH',
    KEY,
    [{}, 'The request contains no changes.'],
    [{ plan: 'gold' }, 'plan must be one of'],
    [{ minute: 'many' }, 'minute must be a whole number'],
    [{ disabled: 'yes' }, 'disabled must be true or false'],
    [{ expiresAt: 'soon' }, 'expiresAt must be an RFC 3339 time like 2026-11-25T14:05:00Z'],
    [{ expiresAt: '2300-01-01T00:00:00Z' }, 'expiresAt must be between 1970 and 2255'],
    [{ name: '\ud800' }, 'name must be well-formed Unicode'],
    [{ secret: 'mine' }, '"secret" is not known'],
  ),
  ...bodies(
    'POST',
    `${KEY}/secrets`,
    [{}, 'name is required'],
    [{ name: 'a', scope: [] }, 'scope must contain read or write'],
    [{ name: 'a', scope: 'read' }, 'scope must be a list'],
    [{ name: 'a', networks: '10.0.0.0/8' }, 'networks must be a list'],
    [{ name: 'a', scope: ['admin'] }, 'must contain read or write'],
    [{ name: 'a', networks: ['10.1.2.3/8'] }, NETWORKS],
    [{ name: 'a', networks: ['example.com'] }, NETWORKS],
    [{ name: 'a', networks: Array(21).fill('10.0.0.1') }, 'networks must have at most 20 entries'],
    [{ name: 'a', expiresAt: '2020-01-01T00:00:00Z' }, 'expiresAt must be in the future'],
    [{ name: 'a', secret: 'mine' }, '"secret" is not known'],
  ),
  ...bodies(
    'PUT',
    `${KEY}/ban`,
    [{ seconds: 0 }, 'seconds must be a whole number of seconds from 1 to'],
    [{ seconds: 1e9 }, 'seconds must be a whole number'],
    [{ reason: 'no length' }, 'seconds is required'],
    [{ seconds: 5, reason: 'a\nb' }, 'reason'],
  ),
  ...bodies(
    'POST',
    `${KEY}/reset`,
    [{ seconds: 5 }, '"seconds" is not known'],
    [{ reason: 'a\nb' }, 'reason must not be empty or contain control characters'],
    [{ reason: 7 }, 'reason must be a string'],
    [[], 'object'],
  ),
  ...['author=', `author=${'a'.repeat(101)}`, 'reason=a%0Ab', 'author=a&author=b'].map(
    (query): Row => ['DELETE', `${KEY}?${query}`, undefined, query.split('=', 1)[0] as string],
  ),
  ...bodies(
    'POST',
    '/tokens',
    [{ name: 'a', role: 'root' }, 'role must be one of viewer, operator, admin'],
    [{ name: 'a' }, 'role is required'],
    [{ name: '', role: 'viewer' }, 'name must not be empty'],
    [{ name: 'a\u001b[2J', role: 'viewer' }, 'name must not be empty or contain control characters'],
    [{ name: ' \u00a0', role: 'viewer' }, 'name must not be empty or contain control characters'],
    // This character would reverse the text that follows, for example in a table of names.
    [{ name: 'a\u202eb', role: 'viewer' }, 'name must not be empty or contain control characters'],
    [{ name: 'a', role: 'viewer', digest: 'x' }, '"digest" is not known'],
  ),
  ...bodies(
    'PATCH',
    '/plans/free',
    [{ minute: '60' }, 'minute must be a whole number from 1 to 1000000000'],
    [{ minute: 0 }, 'minute must be a whole number'],
    [{ minutes: 5 }, '"minutes" is not known'],
    [{ author: 'ada' }, 'The request contains no changes.'],
    [{ minute: 5, author: 'a\u001b[2Jb' }, 'author must not be empty or contain control characters'],
    [{ minute: 5, reason: 'a'.repeat(501) }, 'reason'],
  ),
  ['PATCH', '/plans/enterprise', { minute: 5 }, 'enterprise has no minute limit'],
  ...bodies(
    'PATCH',
    '/plans',
    [{}, 'plans is required.'],
    [{ plans: [] }, 'plans must be an object of plans'],
    [{ plans: 'free' }, 'plans must be an object of plans'],
    [{ plans: {} }, 'The request contains no changes.'],
    [{ plans: { free: {} } }, 'The request contains no changes.'],
    [{ plans: { free: 7 } }, 'plans.free must be an object'],
    [{ plans: { gold: { minute: 5 } } }, '"gold" is not known.'],
    [{ plans: { free: { minute: '5' } } }, 'plans.free.minute must be a whole number'],
    [{ plans: { free: { minute: 5 }, enterprise: { minute: 5 } } }, 'enterprise has no minute limit'],
    [{ plans: { free: { minute: 7 }, __proto: { minute: 7 } } }, '"__proto" is not known'],
    [JSON.parse('{"plans": {"free": {"minute": 7}, "__proto__": {}}}'), 'plans.__proto__ is not a plan'],
  ),
  ...bodies(
    'POST',
    '/plans/rollback',
    [{ id: 7 }, 'id must be the id of a change'],
    [{ id: 'last' }, 'id must be the id of a change'],
  ),
  ...bodies(
    'POST',
    '/plans/free/try',
    [{}, 'The body contains no limits to try.'],
    [{ minute: 0 }, 'minute must be a whole number from 1'],
    [{ ban_after: 5 }, '"ban_after" is not known'],
  ),
  ['POST', '/plans/enterprise/try', { minute: 5 }, 'enterprise has no limits'],
  ['POST', '/plans/free/try?after=x', { minute: 5 }, 'after must be'],
  ...queries(
    '/keys',
    ['plan=gold', 'plan must be one of free, pro, business, enterprise.'],
    ['state=asleep', 'state must be one of active, banned, disabled, expired, unreadable.'],
    ['sort=size', 'sort must be one of newest, oldest, name, used, idle.'],
    ['plan=pro&plan=free', 'plan must be one of'],
    ['unusedSeconds=30d', 'unusedSeconds must be a whole number'],
    ...['0', '101'].map((limit) => [`limit=${limit}`, 'limit must be a whole number from 1 to 100.'] as const),
    ...['abc', '', '-1', '1.5', '1234567890', '1&offset=2'].map((offset) => [`offset=${offset}`, NO_PLACE] as const),
    ['tag=customer', NO_TAG],
    ...['0', '101', '-1', '80.5', 'all', '', '80&near=90'].map((near) => [`near=${near}`, NOT_NEAR] as const),
  ),
  ...queries(
    '/keys/top',
    ['by=bytes', 'by must be one of requests, refused.'],
    ['minutes=61', 'minutes must be a whole number from 1 to 60.'],
  ),
  ...queries('/keys/find', ['', 'text must have 1 to 200 characters.'], ['text=%20', 'text must have 1 to 200']),
  ...queries(
    '/usage',
    ['from=2026-02-30', 'from must be a date like 2026-11-01.'],
    ['to=yesterday', 'to must be a date like 2026-11-01.'],
    ['from=2026-11-20&to=2026-11-01', 'from must not be after to.'],
    ['from=2026-11-01&from=2026-11-02', 'from must be a date like 2026-11-01.'],
    ['after=somewhere', NO_NEXT],
    ['after=1-000000000000%0A', NO_NEXT],
    ['limit=101', 'limit must be a whole number from 1 to 100.'],
    ['tag=:acme', NO_TAG],
    ['by=tag:', NO_SUMS],
    ['by=week', NO_SUMS],
  ),
  ...queries('/backup', ['after=somewhere', NO_NEXT], ['limit=101', 'limit must be a whole number from 1 to 100.']),
  ...queries(
    '/activity',
    ['limit=0', 'limit'],
    ['limit=1001', 'limit'],
    ['limit=x', 'limit'],
    ['after=yesterday', 'after'],
    ['after=1-1-1', 'after'],
    ['from=today', 'from'],
    ['to=1', 'to'],
    ['action=typo', 'action'],
    [BACKWARDS, 'from'],
  ),
  ...queries(
    '/requests',
    ['status=600', 'status'],
    ['status=4x', 'status'],
    ['limit=0', 'limit'],
    ['limit=201', 'limit'],
    ['after=x', 'after'],
    ['from=yesterday', 'from'],
    [BACKWARDS, 'from'],
    ['q=a&q=b', 'q'],
    [`q=${'a'.repeat(201)}`, 'q'],
    ['tag=customer:', NO_TAG],
  ),
];

const everything = () =>
  Promise.all(
    [KEY, '/keys', '/plans', '/tokens', '/activity'].map(async (path) => (await stack.admin('GET', path)).text),
  );
const before = await everything();

test.for(ROWS)('%s %s is refused with a message and changes nothing: %j', async ([method, path, body, message]) => {
  const { status, json } = await stack.admin(method, path, body);
  const code = path.includes('?') ? 'invalid_parameter' : 'invalid_request';
  expect([status, json]).toEqual([400, { code, message: expect.stringContaining(message), status: 400 }]);
  expect(await everything()).toEqual(before);
});
