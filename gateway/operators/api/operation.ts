import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import type { Answer, Call, ServiceOptions, ServiceRoute } from '../../../shared/http/service.ts';
import type { Logger } from '../../../shared/process/logger.ts';
import { must } from '../../../shared/schemas/must.ts';
import type { CheckResult } from '../../check-result.ts';
import { type PlanField, ruleOf } from '../../limiter/plans.ts';
import { MAX_TAGS, splitTags, TAG_NAME, TAG_NAME_RULE, TAG_VALUE, TAG_VALUE_RULE } from '../../limiter/tags.ts';
import type { OperatorsStores } from '../../stores/backend.ts';
import { line } from '../../stores/key-hash.ts';
import type { PlanCache } from '../../stores/plan-cache.ts';
import { type KeyCursor, readCursor } from '../../stores/storage.ts';
import type { Role } from '../../stores/words.ts';
import type { FoundRequests, RequestQuery } from '../../telemetry/recent-requests.ts';
import type { TrafficSource, WatchedTraffic } from '../../telemetry/state.ts';
import { redactSecrets } from '../tokens.ts';
import type { RedisMode } from './answers.ts';
import type { FindingsSince, Health } from './health.ts';

/** The parts of an operation of the admin API: its dependencies, its description, and the values that it reads. */

export interface AdminDependencies extends OperatorsStores {
  readonly planCache: PlanCache;
  readonly logger: Logger;
  readonly traffic: WatchedTraffic;
  readonly redisMode: RedisMode;
  readonly checkDependencies: Readonly<Record<string, () => Promise<CheckResult[]> | CheckResult[]>>;
  readonly health: Pick<Health, 'watch' | 'seen' | 'bad'>;
  readonly requests: RequestSource;
  readonly findings: FindingsSince;
}

/** The last requests of the processes that serve clients, the newest first. */
export interface RequestSource {
  find(query: RequestQuery): Promise<FoundRequests>;
}

/** What the operators' listener reads from the processes that serve clients. This process may be one of them. */
export type AboutGateway = Pick<ServiceOptions<AdminDependencies, Operator>, 'metrics' | 'check'> &
  Omit<TrafficSource, 'counted'> &
  Pick<AdminDependencies, 'requests'>;

export interface Operator {
  /** The name from a trusted proxy, or the token's name. The shared token has none: it does not identify a person. */
  readonly name: string | undefined;
  /** Undefined on routes that need no token. */
  readonly role: Role | undefined;
  readonly tokenId: string | undefined;
}

export type AdminCall = Call<AdminDependencies, Operator>;

/** The description of an operation, which the OpenAPI document publishes. */
interface Facts {
  /** The role that a caller needs. By default, viewers can read and operators can change. */
  readonly needs?: Role;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly isBodyOptional?: true;
  /** The body of a successful response; undefined if it has none. */
  readonly answer?: z.ZodType;
  /** Whether it creates a resource, so that its answer has the status 201. */
  readonly creates?: true;
  /** Whether the ETag of its answer is the version of the plan table. */
  readonly isVersioned?: true;
  /** Errors by status, besides those that its method, path and body imply. */
  readonly errors?: readonly number[];
}

export interface AdminOperation extends Facts {
  run(call: AdminCall): Promise<Answer>;
}

/** An operation with its method and path. */
export interface AdminRoute extends ServiceRoute<AdminDependencies, Operator>, Facts {
  readonly needs?: Role;
  readonly summary: string;
}

/**
 * Defines an operation of the admin API.
 * @param answerTo returns the body of a successful response. It gets the parsed query, and a list for response headers
 */
export function operation<Q extends z.ZodObject, A extends z.ZodType>(
  facts: Facts & { readonly query?: Q; readonly answer?: A },
  answerTo: (call: AdminCall, asked: z.output<Q>, headers: string[]) => Promise<z.output<A>>,
): AdminOperation {
  const { query, answer, creates, isVersioned } = facts;
  return {
    ...facts,
    async run(call) {
      const added: string[] = [];
      const body = await answerTo(call, (query && readQuery(query, call.query)) as z.output<Q>, added);
      const { version } = call.deps.planCache;
      const etag = isVersioned && version !== undefined ? ['ETag', `"${version}"`] : [];
      return { status: answer === undefined ? 204 : creates ? 201 : 200, body, headers: [...etag, ...added] };
    },
  };
}

/** The maximum size of a request body of the admin API, except for a restore. */
export const ADMIN_BODY_LIMIT_BYTES = 16_384;

export const who = {
  author: line(100).optional(),
  reason: z.union([line(500), z.literal('')], { error: must('be a string') }).optional(),
};

export const time = z.iso.datetime({ offset: true, error: must('be an RFC 3339 time like 2026-11-25T14:05:00Z') });

/** Refuses a member named `__proto__`, which Zod's records drop silently. @param fault the text after the name */
export const refusingProto = <S extends z.ZodType>(record: S, fault: string) =>
  z.preprocess((given, context) => {
    if (typeof given === 'object' && given !== null && Object.hasOwn(given, '__proto__'))
      context.addIssue({ code: 'custom', path: ['__proto__'], message: fault });
    return given;
  }, record);

const NO_TAG_NAME = `is not a tag name: a tag name has ${TAG_NAME_RULE}`;

export const tags = refusingProto(
  z
    .record(
      z.string().regex(TAG_NAME),
      z.string({ error: must('be a string') }).regex(TAG_VALUE, `must have ${TAG_VALUE_RULE}`),
      { error: ({ code }) => (code === 'invalid_key' ? NO_TAG_NAME : 'must be an object of strings') },
    )
    .refine((given) => Object.keys(given).length <= MAX_TAGS, `must have at most ${MAX_TAGS} entries`),
  NO_TAG_NAME,
);

export const integer = (least: number, most: number, what = 'a whole number') => {
  const error = must(`be ${what} from ${least} to ${most}`);
  return z.int({ error }).min(least, { error }).max(most, { error });
};

export const planNumber = (field: PlanField) => integer(ruleOf(field).least, ruleOf(field).most);

export const limitValue = planNumber('minute');

/** All parameters that an operation accepts. A change also accepts an author and a reason. */
export const parametersOf = ({ method, needs, query }: Pick<AdminRoute, 'method' | 'needs' | 'query'>) => ({
  ...(query?.shape as Readonly<Record<string, z.ZodType>> | undefined),
  ...(method !== 'GET' && needs !== 'viewer' && who),
});

/** Refuses unknown parameters: otherwise, a misspelt filter would match everything. @throws {HttpError} 400 */
export function refuseUnknown(known: readonly string[], query: URLSearchParams): void {
  const unknown = [...query.keys()].find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const others = known.length === 0 ? 'It accepts none.' : `It accepts ${known.join(', ')}.`;
  const named = redactSecrets(unknown).slice(0, LONGEST_NAME);
  throw new HttpError('invalid_parameter', `${named} is not a parameter of this operation. ${others}`);
}

const LONGEST_NAME = 50;

/** Reads the parameters of a query. @throws {HttpError} 400 for an invalid value, or a parameter that is repeated */
export function readQuery<S extends z.ZodObject>(schema: S, query: URLSearchParams): z.output<S> {
  const given = Object.keys(schema.shape).map((name) => {
    const [text, ...more] = query.getAll(name);
    return [name, more.length === 0 && !isList(schema.shape[name]) ? text : query.getAll(name)];
  });
  const { success, data, error } = schema.safeParse(Object.fromEntries(given));
  if (success) return data;
  const [{ path, message } = { path: [], message: '' }] = error.issues;
  throw new HttpError('invalid_parameter', `${String(path[0])} ${message}.`);
}

/** Whether a parameter can be repeated. */
const isList = (schema: unknown): boolean => schema instanceof z.ZodDefault && schema.unwrap() instanceof z.ZodArray;

export function wholeNumber(min: number, max: number) {
  const error = must(`be a whole number from ${min} to ${max}`);
  return z
    .string({ error })
    .regex(/^\d{1,9}$/, { error })
    .transform(Number)
    .pipe(integer(min, max));
}

export const offset = wholeNumber(0, 999_999_999).default(0);

export const choice = <const T extends readonly string[]>(options: T) =>
  z.enum(options, { error: must(`be one of ${options.join(', ')}`) });

/** Where a walk through the keys continues; the `next` of a previous answer. */
export const after = cursor((text) => readCursor(text) !== undefined);

export const cursorIn = (text: string | undefined): KeyCursor | undefined =>
  text === undefined ? undefined : readCursor(text);

/** The `next` of a previous answer. */
export function cursor(isGiven: (text: string) => boolean) {
  const error = must('be the `next` of a previous response');
  return z.string({ error }).refine(isGiven, { error }).optional();
}

const LONGEST_TEXT = 200;
const TEXT = must(`be given once, with at most ${LONGEST_TEXT} characters`);

/** An empty text counts as absent. */
export const text = z.string({ error: TEXT }).max(LONGEST_TEXT, { error: TEXT }).optional();

/** The bounds of a search, each an RFC 3339 time. */
export const period = { from: time.optional(), to: time.optional() };

/** @throws {HttpError} 400 unless they are in order */
export function checkOrder(from: number | undefined, to: number | undefined): void {
  if (from !== undefined && to !== undefined && from > to)
    throw new HttpError('invalid_parameter', 'from must not be after to.');
}

export const msOf = (time: string | undefined): number | undefined =>
  time === undefined ? undefined : Date.parse(time);

const TAG = must('be the name and value of a tag, such as customer:acme');

const partsOf = (given: readonly string[]) => given.flatMap(splitTags);

/** Tags that a key must have: one per parameter, or several in one, such as `customer:acme,env:prod`. */
export const tag = z
  .array(z.string().refine((text) => !partsOf([text]).includes(undefined), { error: TAG }))
  .default([]);

export const tagsIn = (given: readonly string[]): [name: string, value: string][] =>
  partsOf(given).filter((one) => one !== undefined);
