import { type Command, Option } from 'commander';
import { PLAN_NAMES } from '../../limiter/plans.ts';
import type { KeysAnswer, KeyView, LoudKey } from '../api/answers.ts';
import {
  FirstOf,
  KEY_ORDER_NAMES,
  KEY_ORDERS,
  KEY_STATES,
  type KeyOrder,
  loudestFirst,
  TOP_BY,
  type TopBy,
} from '../api/key-order.ts';
import { firstFilled } from '../whole-answers.ts';
import { describeIdle, describeKeys, describeNear, describeTop } from './key-text.ts';
import type { Session } from './session.ts';
import { count, seconds, TAG_FILTER, wantedTag } from './values.ts';

/** Lists of keys. The gateway checks a limited number of keys per call, so each list calls it until all are checked. */

interface Filters {
  readonly name?: string;
  readonly plan?: string;
  readonly state?: string;
  readonly tag?: string;
  readonly near?: string;
  /** The time in seconds. */
  readonly unused?: number;
}

const LIST_HELP = `
A key must match all filters. Without --sort the newest keys come first, and --offset continues. With another order all keys are
checked, and the first ones are shown. Without Redis, last uses are only known since the gateway was started.

Examples:
  ctl keys list --name acme --json
  ctl keys list --near 95 --sort used          which keys are close to the day limit
  ctl keys list --unused 30d --sort idle       which keys are no longer used
  ctl keys list --plan pro --state banned
  ctl keys list --tag customer=acme --tag env=prod`;

/** Adds `keys list` and `keys top`. */
export function addKeyLists(keys: Command, session: Session): void {
  withFilters(keys.command('list'))
    .description('list keys, the newest first')
    .addOption(
      new Option('--near [percent]', 'only keys that have used this percentage of their day limit').preset('80'),
    )
    .addOption(
      new Option('--unused <time>', 'only keys without a request for this long, such as 12h or 30d').argParser(seconds),
    )
    .addOption(new Option('--sort <order>', 'the sort order').choices(KEY_ORDER_NAMES).default('newest'))
    .option('--offset <number>', 'the number of keys to skip', '0')
    .option('--limit <number>', 'maximum number of keys, up to 100', count, 100)
    .addHelpText('after', LIST_HELP)
    .action(async (options: Filters & { sort: KeyOrder; offset: string; limit: number }, command: Command) => {
      const { sort, offset, limit, ...filters } = options;
      if (sort !== 'newest' && offset !== '0') command.error('error: --offset cannot be used with --sort.');
      const list = sort === 'newest' ? listNewest : listSorted;
      await list(session, { ...queryOf(filters), offset, sort, limit: String(limit) }, describing(sort, filters));
    });

  withFilters(keys.command('top'))
    .description('list the keys with the most requests in the last minutes, over all gateways')
    .option('--minutes <number>', 'number of minutes to look back, up to 60', count, 5)
    .addOption(new Option('--by <count>', 'what to rank by').choices(TOP_BY).default('requests'))
    .option('--limit <number>', 'maximum number of keys, up to 100', count, 10)
    .addHelpText(
      'after',
      `
The requests of this many full minutes and of the current one are counted, except those that a running ban refuses, and those
that were decided while Redis was away.

Examples:
  ctl keys top
  ctl keys top --minutes 60 --by refused --plan free
  watch -c ctl keys top --minutes 1`,
    )
    .action(async ({ minutes, by, limit, ...filters }: Filters & { minutes: number; by: TopBy; limit: number }) => {
      const query = { ...queryOf(filters), minutes: String(minutes), by, limit: String(limit) };
      const first = new FirstOf<LoudKey>(limit, loudestFirst(by));
      const total = await offerAll<LoudKey>(session, '/keys/top', query, first);
      session.print({ minutes, total, keys: first.items }, () =>
        first.items.length === 0
          ? `No key had such requests in the last ${minutes} minutes.`
          : describeTop(first.items),
      );
    });
}

const withFilters = (command: Command): Command =>
  command
    .option('--name <text>', 'only keys whose name contains this text, in upper or lower case')
    .addOption(new Option('--plan <plan>', 'only keys of this plan').choices(PLAN_NAMES))
    .addOption(new Option('--state <state>', 'only keys in this state').choices(KEY_STATES))
    .option(...TAG_FILTER, wantedTag);

function queryOf({ unused, ...filters }: Filters): Record<string, string> {
  return { ...filters, ...(unused !== undefined && { unusedSeconds: String(unused) }) };
}

/** The columns that the question is about. */
function describing(sort: KeyOrder, { near, unused }: Filters): (keys: readonly KeyView[]) => string {
  if (near !== undefined || sort === 'used') return describeNear;
  return unused !== undefined || sort === 'idle' ? describeIdle : describeKeys;
}

type Describe = (keys: readonly KeyView[]) => string;

/** Calls until a key is found. */
async function listNewest(session: Session, query: Record<string, string>, describe: Describe): Promise<void> {
  const ask = (path: string) => session.call<KeysAnswer>('GET', path);
  const page = await firstFilled(ask, '/keys', query, ({ keys }) => keys);
  const next = page.next === undefined ? '' : `; more with --offset ${page.next}`;
  const list = { ...page, offset: Number(query.offset) };
  session.print(list, () => `${describe(page.keys)}\n\n${page.keys.length} of ${page.total}${next}`);
}

async function listSorted(session: Session, query: Record<string, string>, describe: Describe): Promise<void> {
  const compare = KEY_ORDERS[query.sort as KeyOrder];
  const first = new FirstOf<KeyView>(Number(query.limit), (a, b) => compare(sortable(a), sortable(b)));
  const total = await offerAll(session, '/keys', query, first);
  const keys = first.items;
  session.print({ total, keys }, () => `${describe(keys)}\n\n${keys.length} of ${total}`);
}

function sortable({ createdAt, lastUsedAt, name, buckets }: KeyView) {
  const at = lastUsedAt === undefined ? undefined : Date.parse(lastUsedAt);
  const dayUsed = buckets === undefined ? 0 : buckets.day.used / buckets.day.limit;
  return { createdAt: Date.parse(createdAt), lastUsedAt: at, name, dayUsed };
}

/** Offers the keys of all pages. A key can appear twice if it moves meanwhile. @returns the number of all keys */
async function offerAll<K extends KeyView>(
  session: Session,
  path: string,
  query: Record<string, string>,
  first: FirstOf<K>,
): Promise<number> {
  const seen = new Set<string>();
  let total = 0;
  for await (const page of session.parts<KeysAnswer & { readonly keys: readonly K[] }>(path, query)) {
    for (const key of page.keys) if (!seen.has(key.id)) first.offer(key);
    for (const { id } of page.keys) seen.add(id);
    ({ total } = page);
  }
  return total;
}
