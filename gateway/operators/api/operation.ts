import { z } from 'zod';
import { MAX_VALUES, readBody } from '../../../shared/http/body.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { announcesBody } from '../../../shared/http/request-head.ts';
import type { Answer, Call, ServiceOptions, ServiceRoute } from '../../../shared/http/service.ts';
import type { Logger } from '../../../shared/process/logger.ts';
import { must } from '../../../shared/schemas/must.ts';
import type { CheckResult } from '../../check-result.ts';
import type { Activity } from '../../stores/audit.ts';
import type { OperatorsStores } from '../../stores/backend.ts';
import { line } from '../../stores/key-hash.ts';
import type { PlanCache } from '../../stores/plan-cache.ts';
import type { Role } from '../../stores/words.ts';
import type { FoundRequests, RequestQuery } from '../../telemetry/recent-requests.ts';
import type { TrafficSource, WatchedTraffic } from '../../telemetry/state.ts';
import { CTL } from '../clients.ts';
import { redactSecrets } from '../tokens.ts';
import type { RedisMode } from './answers.ts';
import type { FindingsSince, Health } from './health.ts';

/** What an operation of the admin API consists of: dependencies, a description, and the input from a call. */

export interface AdminDependencies extends OperatorsStores {
  readonly planCache: PlanCache;
  readonly logger: Logger;
  readonly traffic: WatchedTraffic;
  readonly redisMode: RedisMode;
  /** The checks of everything that the gateway depends on, by name. */
  readonly checks: Readonly<Record<string, () => Promise<CheckResult[]> | CheckResult[]>>;
  readonly health: Pick<Health, 'watch' | 'bad' | 'note'>;
  readonly requests: RequestSource;
  readonly findings: FindingsSince;
}

/** The last requests of the processes that serve clients, newest first. */
export interface RequestSource {
  find(query: RequestQuery): Promise<FoundRequests>;
}

/** What the admin listener reads from the processes that serve clients. This process may be one of them. */
export type AboutGateway = Pick<ServiceOptions<AdminDependencies, Operator>, 'metrics' | 'check'> &
  Omit<TrafficSource, 'counted'> &
  Pick<AdminDependencies, 'requests'>;

export interface Operator {
  /** The name from a trusted proxy, or the token's name. The shared token has no name, because it identifies nobody. */
  readonly name: string | undefined;
  /** Undefined on routes that need no token. */
  readonly role: Role | undefined;
  readonly tokenId: string | undefined;
}

export type AdminCall = Call<AdminDependencies, Operator>;

/** The description of an operation, which the OpenAPI document publishes. */
interface Facts<Q extends z.ZodObject = z.ZodObject, B extends z.ZodType = z.ZodType, A extends z.ZodType = z.ZodType> {
  /** The required role: by default viewer for reading, and operator for everything else. */
  readonly needs?: Role;
  readonly query?: Q;
  readonly body?: B;
  readonly isBodyOptional?: true;
  /** The body of a successful response; undefined if it has none. */
  readonly answer?: A;
  /** Whether it creates a resource, so that its response has the status 201. */
  readonly creates?: true;
  /** Whether the ETag of its response is the version of the plan table. */
  readonly isVersioned?: true;
  /** The statuses of its errors, besides those that its method, path and body imply. */
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

/** The part of an operation's definition that is not published. */
interface Reading<T> {
  /** Finds what the path names, after the query was read and before the body is. */
  readonly target?: (call: AdminCall) => T | Promise<T>;
  readonly bodyLimits?: { readonly bytes: number; readonly values: number };
}

interface Asked<Q extends z.ZodObject, T, B extends z.ZodType> extends Omit<AdminCall, 'query'> {
  readonly query: z.output<Q>;
  readonly target: T;
  /** The body without author and reason. */
  readonly given: Omit<z.output<B>, keyof typeof who>;
  /** What all audit entries of the call share. */
  readonly about: About;
  /** Additional headers of a successful response. */
  readonly headers: string[];
}

/**
 * Defines an operation of the admin API.
 * @param answerTo returns the body of a successful response
 */
export function operation<Q extends z.ZodObject, T, B extends z.ZodType, A extends z.ZodType>(
  facts: Facts<Q, B, A> & Reading<T>,
  answerTo: (asked: Asked<Q, T, B>) => Promise<z.output<A>>,
): AdminOperation {
  const { target, bodyLimits, ...published } = facts;
  const { query, body, isBodyOptional, answer, creates, isVersioned } = published;
  const { bytes, values } = bodyLimits ?? { bytes: BODY_LIMIT_BYTES, values: MAX_VALUES };
  return {
    ...published,
    async run(call) {
      const { deps, request, response } = call;
      const asked = (query && readQuery(query, call.query)) as z.output<Q>;
      const found = (await target?.(call)) as T;
      const isRead = body !== undefined && (!isBodyOptional || announcesBody(request));
      const read = isRead ? await readBody(body, request, response, bytes, values) : {};
      const { author, reason, ...given } = read as z.output<typeof Who> & z.output<B>;
      const about = aboutCall(call, { author, reason });
      const headers: string[] = [];
      const answered = await answerTo({ ...call, query: asked, target: found, given, about, headers });
      const { version } = deps.planCache;
      const etag = isVersioned && version !== undefined ? ['ETag', `"${version}"`] : [];
      const status = answer === undefined ? 204 : creates ? 201 : 200;
      return { status, body: answered, headers: [...etag, ...headers] };
    },
  };
}

/** The maximum size of a request body of the admin API, except for a restore. */
const BODY_LIMIT_BYTES = 16_384;

export const who = {
  author: line(100).optional(),
  reason: z.union([line(500), z.literal('')], { error: must('be a string') }).optional(),
};

const Who = z.object(who);

export type About = Omit<Activity, 'action' | 'target' | 'changes'>;

/**
 * Users of the shared token may send a name, as `author` in the body or in the query; a named token already has one. A
 * `reason` can be sent in the same way.
 * @throws {HttpError} 400 for an invalid author or reason in the query
 */
function aboutCall({ caller, request, requestId, query }: AdminCall, given: z.output<typeof Who>): About {
  const said = readQuery(Who, query);
  return {
    actor: redactSecrets(caller.name ?? given.author ?? said.author ?? 'unknown'),
    reason: redactSecrets(given.reason ?? said.reason ?? ''),
    via: viaOf(request.headers),
    requestId,
    token: caller.tokenId,
  };
}

/** Browsers send Fetch Metadata with every request; the CLI sends its name. Other programs can imitate both. */
function viaOf({ 'sec-fetch-site': site, 'user-agent': agent }: AdminCall['request']['headers']): About['via'] {
  if (site !== undefined) return 'console';
  return agent === CTL ? 'cli' : 'api';
}

/** @throws {HttpError} 400 for a body without any changes */
export function refuseEmpty(given: object): void {
  if (Object.keys(given).length === 0) throw new HttpError('invalid_request', 'The request contains no changes.');
}

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

/** Reads the parameters of a query. @throws {HttpError} 400 for an invalid value or a repeated parameter */
function readQuery<S extends z.ZodObject>(schema: S, query: URLSearchParams): z.output<S> {
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
