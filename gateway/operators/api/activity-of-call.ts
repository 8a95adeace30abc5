import { z } from 'zod';
import { readBody } from '../../../shared/http/body.ts';
import type { Secret } from '../../limiter/credential.ts';
import type { KeyRecord } from '../../limiter/key-record.ts';
import { describeNetwork } from '../../limiter/networks.ts';
import { writeTags } from '../../limiter/tags.ts';
import type { Activity, FieldChange } from '../../stores/audit.ts';
import { redactSecrets } from '../access-token.ts';
import { CTL } from '../user-agent.ts';
import { toTime } from './key-view.ts';
import { ADMIN_BODY_LIMIT_BYTES, type AdminCall } from './operation.ts';
import { readQuery } from './query.ts';
import { who } from './values.ts';

/** How the audit log describes an operator's call. */

const Who = z.object(who);

/** The author and the reason as given in a body. */
interface Given {
  readonly author?: string | undefined;
  readonly reason?: string | undefined;
}

export type About = Omit<Activity, 'action' | 'target' | 'changes'>;

/**
 * What all audit entries of a call have in common. Users of the shared token may give a name, as `author` in the body
 * or in the query; a named token has its own. The reason can be given in the same ways.
 * @throws {HttpError} 400 for a bad author or reason in the query
 */
export function aboutCall({ caller, request, requestId, query }: AdminCall, given: Given = {}): About {
  const said = readQuery(Who, query);
  const { author = said.author, reason = said.reason } = given;
  return {
    actor: redactSecrets(caller.name ?? author ?? 'unknown'),
    reason: redactSecrets(reason ?? ''),
    via: viaOf(request.headers),
    requestId,
    token: caller.tokenId,
  };
}

/**
 * Reads the body of a change, and what all its entries have in common.
 * @throws {HttpError} as `readBody` and `aboutCall` do
 */
export async function readChange<T extends object>(call: AdminCall, schema: z.ZodType<T>) {
  const body: T & Given = await readBody(schema, call.request, call.response, ADMIN_BODY_LIMIT_BYTES);
  const { author, reason, ...given } = body;
  return { about: aboutCall(call, { author, reason }), given };
}

/** Builds an entry without any secret that somebody wrote into a name. */
export const entry = (
  about: About,
  action: Activity['action'],
  target: string,
  changes: readonly FieldChange[] = [],
): Activity => ({ ...about, action, target, changes: changes.map(withoutSecrets) });

export const allOf = (values: Texts): FieldChange[] => differences({}, values);

type Texts = Readonly<Record<string, string | undefined>>;

export function differences(before: Texts, after: Texts): FieldChange[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changes = names.map((field) => ({ field, from: before[field], to: after[field] }));
  return changes.filter(({ from, to }) => from !== to);
}

export const keyTexts = ({
  name,
  plan,
  minute,
  day,
  expiresAt,
  disabled,
  tags,
}: Omit<KeyRecord, 'secrets' | 'plan'> & { readonly plan: string }): Texts => ({
  name,
  plan,
  minute: minute?.toString(),
  day: day?.toString(),
  expiresAt: timeText(expiresAt),
  disabled: disabled ? 'true' : undefined,
  tags: writeTags(tags),
});

export const secretTexts = ({ id, name, scope, networks, expiresAt }: Secret): Texts => ({
  secret: id,
  name,
  scope: scope.join(', '),
  networks: networks.map(describeNetwork).join(', ') || undefined,
  expiresAt: timeText(expiresAt),
});

const timeText = (time: number | undefined): string | undefined => (time === undefined ? undefined : toTime(time));

const withoutSecrets = ({ field, from, to }: FieldChange): FieldChange => ({
  field,
  ...(from !== undefined && { from: redactSecrets(from) }),
  ...(to !== undefined && { to: redactSecrets(to) }),
});

/** Browsers send Fetch Metadata with every request, and the command line its name. A program can claim to be either. */
function viaOf({ 'sec-fetch-site': site, 'user-agent': agent }: AdminCall['request']['headers']): Activity['via'] {
  if (site !== undefined) return 'console';
  return agent === CTL ? 'cli' : 'api';
}
