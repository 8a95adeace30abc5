import { type Command, InvalidArgumentError } from 'commander';
import type { RequestsAnswer, RequestView } from '../../api/answers.ts';
import { searchText } from '../../search-text.ts';
import { findKey } from '../key-names.ts';
import { followRequests } from '../request-follow.ts';
import { describeRequest, describeRequests } from '../request-text.ts';
import type { Session } from '../session.ts';
import { harmless } from '../table.ts';
import { count, seconds, TAG_FILTER, time, wantedTag } from '../values.ts';

const SHOWN = 50;
const SHOWN_BEFORE = 10;
const MOST_A_CALL = 200;

interface RequestOptions {
  readonly key?: string;
  readonly tag?: string;
  readonly status?: string;
  readonly code?: string;
  readonly text?: string;
  readonly from?: string;
  readonly to?: string;
  readonly limit?: number;
  readonly follow?: boolean;
  readonly why?: boolean;
}

export const PLACE = 4;

/** Adds `requests`: the last requests of all gateways. */
export function add(program: Command, session: Session): void {
  const requests = program
    .command('requests')
    .description('list the last requests of all gateways, and explain their responses')
    .option('--key <key>', 'only requests of this key, by its id or its whole name')
    .option(...TAG_FILTER, wantedTag)
    .option('--status <status>', 'only requests with this status, such as 429, or this class, such as 4xx')
    .option('--code <code>', 'only requests with this error code, such as key_banned')
    .option('--text <text>', 'only requests whose id, path, address, key id, code or outcome contains this text')
    .option(
      '--from <time>',
      'only requests since this time, such as 2030-12-31T00:00:00Z, or this long ago, such as 15m',
      moment,
    )
    .option('--to <time>', 'only requests before this time', moment)
    .option(
      '--limit <number>',
      `maximum number of requests; default ${SHOWN}, or ${SHOWN_BEFORE} earlier ones with --follow`,
      count,
    )
    .option('--follow', 'print new requests as they are answered, until Ctrl-C')
    .option('--why', 'print the reason under each request that was not served')
    .addHelpText(
      'after',
      `
Each process of each gateway keeps its last RECENT_REQUESTS requests in memory, failures longer than successes; older ones are in
the log. Of many refusals of one key or address in a minute only the first are kept: \`more\` counts the others. The newest
comes first, or with --follow the oldest. With --follow --json each request is a line of its own. A single request is shown in full, with its
reason, what to change, both buckets before and after, and the parts of its duration. Gateways that do not answer are named on standard error.

Examples:
  ctl requests                                      the last 50
  ctl requests --text 1d9d2e71-70ef-42a0-853b       one request, by its X-Request-Id, and why it was refused
  ctl requests --key acme --status 4xx --why        which requests of a client were refused, and why
  ctl requests --tag customer=acme --status 429     requests of all keys of a customer
  ctl requests --code bad_gateway --from 15m        which requests the core failed in the last 15 minutes
  ctl requests --from 2030-12-31T10:00:00Z --to 2030-12-31T10:05:00Z --limit 1000
  ctl requests --status 5xx --follow                failures as they happen
  ctl --json requests --status 429 | jq -r '.requests[].keyName' | sort | uniq -c`,
    )
    .action(async (options: RequestOptions) => {
      if (options.follow && options.to !== undefined)
        requests.error('error: --follow does not end, so --to cannot be used with it.');
      const filters = await filtersOf(session, requests, options);
      if (options.follow) await followRequests(session, filters, options.limit ?? SHOWN_BEFORE, options.why === true);
      else await list(session, filters, options);
    });
}

async function filtersOf(
  session: Session,
  command: Command,
  { key, tag, status, code, text, from, to }: RequestOptions,
): Promise<Record<string, string>> {
  const keyId = key === undefined ? undefined : (await findKey(session, key)).id;
  const given = {
    keyId,
    tag,
    status,
    code,
    q: text === undefined ? undefined : withoutSecret(session, command, text),
    from,
    to,
  };
  return Object.fromEntries(Object.entries(given).filter((one): one is [string, string] => one[1] !== undefined));
}

/** Removes secrets from a text that somebody pasted. */
function withoutSecret(session: Session, command: Command, given: string): string {
  const { text, hadSecret } = searchText(given);
  if (hadSecret && text === '')
    command.error('error: this looks like the secret of a key without its id. Nothing was sent.');
  if (hadSecret) session.tell('Note: the secret was dropped and not sent. It may be in your shell history.');
  return text;
}

async function list(session: Session, filters: Record<string, string>, options: RequestOptions): Promise<void> {
  const found = await read(session, filters, options.limit ?? SHOWN);
  if (found.missing.length > 0)
    session.tell(`Note: these did not answer, so their requests are missing: ${harmless(found.missing.join(', '))}.`);
  session.print(found, () => {
    const [only, ...others] = found.requests;
    if (only === undefined) return 'No remembered request matches.';
    return others.length === 0 ? describeRequest(only) : describeRequests(found.requests, options.why === true);
  });
}

async function read(
  session: Session,
  filters: Record<string, string>,
  most: number,
): Promise<{ requests: RequestView[]; missing: string[] }> {
  const requests: RequestView[] = [];
  const missing = new Set<string>();
  const asked = { ...filters, limit: String(Math.min(most, MOST_A_CALL)) };
  for await (const page of session.parts<RequestsAnswer>('/requests', asked)) {
    requests.push(...page.requests);
    for (const one of page.missing) missing.add(one);
    if (requests.length >= most) break;
  }
  return { requests: requests.slice(0, most), missing: [...missing] };
}

/** Reads a time, or how long ago it was. @throws {InvalidArgumentError} for anything else */
function moment(text: string): string {
  try {
    return /^\d+[smhd]$/.test(text) ? new Date(Date.now() - seconds(text) * 1_000).toISOString() : time(text);
  } catch {
    throw new InvalidArgumentError('It must be a time, such as 2030-12-31T00:00:00Z, or how long ago, such as 15m.');
  }
}
