import { text as textOf } from 'node:stream/consumers';
import { Option } from 'commander';
import { PLAN_NAMES } from '../../limiter/plans.ts';
import type {
  DecisionReport,
  DecisionsAnswer,
  ExplainAnswer,
  FoundAnswer,
  FoundKey,
  KeysAnswer,
  KeyView,
  TopAnswer,
} from '../api/answers.ts';
import { KEY_ORDER_NAMES, KEY_STATES, type KeyOrder, loudestFirst, TOP_BY, type TopBy } from '../api/key-order.ts';
import { firstFilled, inOrder, readSorted } from '../clients.ts';
import { AdminError } from './admin-client.ts';
import type { Command } from './command.ts';
import { describeFound, describeIdle, describeKey, describeKeys, describeNear, describeTop, pathTo } from './key.ts';
import type { Session } from './session.ts';
import { linesOf, preciseTimeText, table, timeText } from './text.ts';
import { count, seconds, TAG_FILTER, wantedTag } from './values.ts';

/** Commands that list keys. One call checks a limited number of keys, so these commands repeat it for the rest. */

interface Filters extends Readonly<Partial<Record<'name' | 'plan' | 'state' | 'tag' | 'near', string>>> {
  /** How long a key must have been unused, in seconds. */
  readonly unused?: number;
}

export function addKeyLists(keys: Command, session: Session): void {
  withFilters(keys.sub('list', 'list keys, newest first'))
    .addOption(
      new Option('--near [percent]', 'only keys that have used at least this percentage of their day limit').preset(
        '80',
      ),
    )
    .option('--unused <time>', 'only keys without a request for this long, such as 12h or 30d', seconds)
    .addOption(new Option('--sort <order>', 'the sort order').choices(KEY_ORDER_NAMES).default('newest'))
    .option('--offset <place>', 'the number of keys to skip, or where the last page says that there are more', '0')
    .option('--limit <number>', 'maximum number of keys, up to 100', count, 100)
    .notes(`
A key must match all filters. Without --sort the newest keys come first, and --offset continues the list. With --sort
all keys are checked, and the first ones in that order are shown. Without Redis, last uses before the gateway's start
are unknown.

Examples:
  ctl keys list --name acme --json
  ctl keys list --near 95 --sort used          which keys are close to the day limit
  ctl keys list --unused 30d --sort idle       which keys are no longer used
  ctl keys list --plan pro --state banned
  ctl keys list --tag customer=acme --tag env=prod`)
    .action(async (options: Filters & { sort: KeyOrder; offset: string; limit: number }, command: Command) => {
      const { sort, offset, limit, ...filters } = options;
      if (sort !== 'newest' && offset !== '0') command.error('error: --offset cannot be used with --sort.');
      const list = sort === 'newest' ? listNewest : listSorted;
      await list(session, { ...queryOf(filters), offset, sort, limit: String(limit) }, describing(sort, filters));
    });

  withFilters(keys.sub('top', 'list the keys with the most requests in the last few minutes, across all gateways'))
    .option('--minutes <number>', 'number of minutes to look back, up to 60', count, 5)
    .addOption(new Option('--by <count>', 'what to rank by').choices(TOP_BY).default('requests'))
    .option('--limit <number>', 'maximum number of keys, up to 100', count, 10)
    .notes(`
Counts requests in the current minute and in the given number of full minutes before it, except those refused by an
active ban and those decided while Redis was unavailable.

Examples:
  ctl keys top
  ctl keys top --minutes 60 --by refused --plan free
  watch -c ctl keys top --minutes 1`)
    .action(async ({ minutes, by, limit, ...filters }: Filters & { minutes: number; by: TopBy; limit: number }) => {
      const query = { ...queryOf(filters), minutes: String(minutes), by, limit: String(limit) };
      const { total, keys } = await readSorted<TopAnswer>(session.get, '/keys/top', query, loudestFirst(by));
      const none = `No key had such requests in the last ${minutes} minutes.`;
      session.print({ minutes, total, keys }, () => (keys.length === 0 ? none : describeTop(keys)));
    });
}

const withFilters = (command: Command): Command =>
  command
    .option('--name <text>', 'only keys whose name contains this text, ignoring case')
    .addOption(new Option('--plan <plan>', 'only keys of this plan').choices(PLAN_NAMES))
    .addOption(new Option('--state <state>', 'only keys in this state').choices(KEY_STATES))
    .option(...TAG_FILTER, wantedTag);

function queryOf({ unused, ...filters }: Filters): Record<string, string> {
  return { ...filters, ...(unused !== undefined && { unusedSeconds: String(unused) }) };
}

type Describe = (keys: readonly KeyView[]) => string;

/** Chooses the columns for the given filters and order. */
function describing(sort: KeyOrder, { near, unused }: Filters): Describe {
  if (near !== undefined || sort === 'used') return describeNear;
  return unused !== undefined || sort === 'idle' ? describeIdle : describeKeys;
}

/** Repeats the call until a page contains keys. */
async function listNewest(session: Session, query: Record<string, string>, describe: Describe): Promise<void> {
  const page = await firstFilled<KeysAnswer>(session.get, '/keys', query, ({ keys }) => keys);
  const next = page.next === undefined ? '' : `; more with --offset ${page.next}`;
  const list = { ...page, offset: /^\d+$/.test(query.offset ?? '') ? Number(query.offset) : undefined };
  session.print(list, () => `${describe(page.keys)}\n\n${page.keys.length} of ${page.total}${next}`);
}

async function listSorted(session: Session, query: Record<string, string>, describe: Describe): Promise<void> {
  const { total, keys } = await readSorted<KeysAnswer>(session.get, '/keys', query, inOrder(query.sort as KeyOrder));
  session.print({ total, keys }, () => `${describe(keys)}\n\n${keys.length} of ${total}`);
}

const MOST_FOUND = 100;
/** No key, id or log line is longer. */
const MOST_READ = 65_536;

export function addFind(keys: Command, session: Session): void {
  const find = keys
    .sub('find', 'find a key by its name or part of it, its id, a request id, or the whole key')
    .argument('[text]', 'what to look for; default: standard input')
    .notes(`
If the text is a whole key, only its id is sent. Pass a whole key on standard input to keep it out of process lists and
shell history. If the text is a line of the access log, the key in that line is found. A request id is looked up in the
last decisions of all gateways.

Examples:
  ctl keys find acme
  ctl keys find 1d9d2e71-70ef-42a0-853b-af79a5ee6eab
  ctl keys find                  prompts for the text on a terminal
  wl-paste | ctl keys find       a key that a customer has sent`)
    .action(async (given: string | undefined) => {
      const text = session.withoutSecret(given ?? (await read(session)), given === undefined ? '' : 'standard input');
      if (text === '') find.error('error: pass a name, an id, a request id or a key.');
      const keys = await search(session, text);
      session.print({ keys }, () => (keys.length === 1 ? describeKey(keys[0]!) : describeFound(keys)));
    });
}

/** Prompts on a terminal, and otherwise reads standard input. */
async function read(session: Session): Promise<string> {
  if (process.stdin.isTTY) return await session.question('A name, an id, a request id or a key: ');
  return (await textOf(process.stdin)).slice(0, MOST_READ);
}

/** @throws {AdminError} if nothing is found */
async function search(session: Session, text: string): Promise<FoundKey[]> {
  const found = new Map<string, FoundKey>();
  for await (const { keys } of session.parts<FoundAnswer>('/keys/find', { text })) {
    for (const key of keys) found.set(key.id, key);
    if (found.size >= MOST_FOUND) break;
  }
  if (found.size > 0) return [...found.values()].slice(0, MOST_FOUND);
  const nothing = 'No key has this id or name, and no such request was found.';
  throw new AdminError('not_found', nothing, { status: 404 });
}

export function addExplain(keys: Command, session: Session): void {
  const explain = keys
    .sub('explain [key]', 'explain why requests with a key, or one request, were admitted or refused')
    .option('--request <id>', 'one request, by its X-Request-Id, which is in every response and log line')
    .option('--limit <number>', 'maximum number of decisions, up to 1000', '50')
    .notes(`
Each gateway keeps its last requests in memory, and all gateways on the same Redis are queried. Requests with unknown
keys, and those refused before a decision, are not kept.

The numbers on both sides of -> are the requests left in each bucket before and after the decision. A request is
admitted if both have at least 1 left, and takes 1 from each; a refused request takes nothing. "Local" means that the
gateway decided on its own while Redis was unavailable.

Examples:
  ctl keys explain 4fXk20LmQa9z --limit 5
  ctl keys explain --request 1d9d2e71-70ef-42a0-853b-af79a5ee6eab`)
    .action(async (key: string | undefined, { request, limit }: { request?: string; limit: string }) => {
      if ((key === undefined) === (request === undefined))
        explain.error('error: pass the id or the name of a key, or a request with --request.');
      const query = new URLSearchParams({ limit });
      if (key !== undefined) {
        const answer = await session.get<ExplainAnswer>(`${await pathTo(session, key)}/explain?${query}`);
        session.noteMissing(answer.missing);
        session.print(answer, () => `${describeKey(answer.key)}\n\n${describeDecisions(answer.decisions)}`);
      } else if (request !== undefined) {
        const path = `/decisions/${encodeURIComponent(request)}?${query}`;
        const answer = await session.get<DecisionsAnswer>(path);
        session.noteMissing(answer.missing);
        session.print(answer, () => answer.decisions.map(describeDecision).join('\n\n'));
      }
    });
}

function describeDecisions(decisions: readonly DecisionReport[]): string {
  if (decisions.length === 0) return 'No recent decision on this key was found.';
  return table(decisions, [
    ['at', ({ at }) => at && preciseTimeText(at)],
    ['outcome', ({ shadow, outcome }) => (shadow === undefined ? outcome : 'shadow refusal')],
    ['refused by', ({ refusedBy }) => refusedBy?.join(', ') ?? '-'],
    ['minute', ({ buckets }) => change(buckets?.minute)],
    ['day', ({ buckets }) => change(buckets?.day)],
    ['mode', ({ mode = '-' }) => mode],
    ['request', ({ requestId }) => requestId],
  ]);
}

function describeDecision(decision: DecisionReport): string {
  const { buckets, plan, planVersion, gateway } = decision;
  return linesOf([
    ['request', decision.requestId],
    ['key', decision.keyId],
    ['outcome', decision.outcome],
    ['shadow', decision.shadow],
    ['refused by', decision.refusedBy?.join(', ')],
    ['banned until', decision.bannedUntil && timeText(decision.bannedUntil)],
    ['plan', plan && `${plan}, table version ${planVersion ?? 'unknown'}`],
    ['minute', buckets && `${change(buckets.minute)} of ${buckets.minute.limit}`],
    ['day', buckets && `${change(buckets.day)} of ${buckets.day.limit}`],
    ['bad overrides', decision.rejectedOverrides?.join(', ')],
    ['decided at', decision.at && preciseTimeText(decision.at)],
    ['mode', decision.mode],
    ['gateway', `${gateway.host}, process ${gateway.pid}${gateway.worker ? `, worker ${gateway.worker}` : ''}`],
  ]);
}

const change = (bucket?: { before: number; after: number }): string =>
  bucket === undefined ? '-' : `${bucket.before} -> ${bucket.after}`;
