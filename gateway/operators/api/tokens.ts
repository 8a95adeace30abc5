import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { must } from '../../../shared/schemas/must.ts';
import { line } from '../../stores/key-hash.ts';
import type { OperatorToken } from '../../stores/tokens.ts';
import { ROLES } from '../../stores/words.ts';
import { createAccessToken } from '../access-token.ts';
import { aboutCall, allOf, differences, entry, readChange } from './activity-of-call.ts';
import type { CallerAnswer, TokensAnswer } from './answers.ts';
import type { AdminOperation } from './operation.ts';
import { who } from './values.ts';

/** Operators' tokens with a name and a role. */

export const NewToken = z.strictObject({
  name: line(100),
  role: z.enum(ROLES, { error: must(`be one of ${ROLES.join(', ')}`) }),
  ...who,
});

/** Creates a token. Only this answer ever shows it. */
export const createToken: AdminOperation = async (call) => {
  const { about, given } = await readChange(call, NewToken);
  const { name, role } = given;
  const { id, token, digest } = createAccessToken();
  const activity = entry(about, 'token.create', id, allOf({ name, role }));
  await call.deps.tokens.create(id, { name, role, createdAt: new Date().toISOString(), digest }, activity);
  return { status: 201, body: { id, token, name, role } };
};

/** Returns the caller's name, and the role of the token. */
export const whoAmI: AdminOperation = async ({ caller: { name, role } }) => ({
  status: 200,
  body: { name, role: role ?? 'viewer' } satisfies CallerAnswer,
});

/** Lists the tokens without their digests, the oldest first. The shared token is not among them. */
export const listTokens: AdminOperation = async ({ deps }) => {
  const tokens = [...(await deps.tokens.list())].map(([id, { name, role, createdAt }]) => ({
    id,
    name,
    role,
    createdAt,
  }));
  const inOrder = tokens.sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  return { status: 200, body: { tokens: inOrder } satisfies TokensAnswer };
};

/** Revokes a token, so that its next request gets 401. */
export const revokeToken: AdminOperation = async (call) => {
  const { deps, params } = call;
  const [id = ''] = params;
  const about = aboutCall(call);
  const entryFor = ({ name, role }: OperatorToken) => entry(about, 'token.revoke', id, differences({ name, role }, {}));
  if (!(await deps.tokens.remove(id, entryFor))) throw new HttpError('not_found', 'There is no such token.');
  return { status: 204, body: undefined };
};
