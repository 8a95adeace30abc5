import { z } from 'zod';
import { ALL_ERRORS, type AnyErrorCode } from '../../../shared/http/errors.ts';
import {
  errorResponses,
  HEADERS,
  type Header,
  type Operation,
  type Parameter,
  type Paths,
  refsTo,
  refTo,
  type Schema,
} from '../../reference/document.ts';
import { errorSchema, FOR_GENERATORS } from '../../reference/schemas.ts';
import { roleFor } from '../../stores/words.ts';
import * as answers from './answers.ts';
import { type AdminRoute, parametersOf } from './operation.ts';

/** Generates the OpenAPI 3.1 document of the admin API from the table of its operations. */

const DESCRIPTION = `Operates a running gateway: keys, bans, plans, usage and the audit log.

**Authentication.** Send an operator's token as a bearer token. Each operation states the role that it needs: a viewer
can read, an operator can also change keys, bans and plans, and an admin can do everything.

**Lists.** One call checks a limited number of keys. If a response has a \`next\`, there are more to check: send it back
as \`offset\` or \`after\`.

Fields without a value are omitted.`;

const CODES = (Object.keys(ALL_ERRORS) as AnyErrorCode[]).filter((code) => !('isForClientsOnly' in ALL_ERRORS[code]));

const RETRY_AFTER: Header = { ...HEADERS['Retry-After'], description: 'Seconds to wait before a retry.' };

const EVERYWHERE = refsTo(['X-Request-Id']);
const HEADERS_OF: Readonly<Record<number, Readonly<Record<string, Header>>>> = {
  401: { 'WWW-Authenticate': HEADERS['WWW-Authenticate'] },
  429: { 'Retry-After': RETRY_AFTER },
  503: { 'Retry-After': { ...RETRY_AFTER, required: false } },
};

const ERRORS = errorResponses(CODES, (status) => ({ ...EVERYWHERE, ...HEADERS_OF[status] }));
const SPECIAL_ERRORS = [404, 409, 413, 415];
const COMMON_ERRORS = [...ERRORS.keys()].filter((status) => !SPECIAL_ERRORS.includes(status));

const textHeader = (description: string, example: string): Header => ({
  description,
  required: false,
  schema: { type: 'string' },
  example,
});
const ETAG = textHeader('The version of the plan table. Send it as If-Match with a change.', '"9f86d081884c7d65"');
const WARNING = textHeader(
  'A warning, for example that a change is in force but could not be recorded.',
  '199 - "The change is in force, but the plan history could not be written."',
);
const IF_MATCH: Parameter = {
  name: 'If-Match',
  in: 'header',
  required: false,
  description: 'The ETag of the plans that the sender has seen. If the table has changed since, the response is 409.',
  schema: { type: 'string' },
};

/** The descriptions of parameters. A name has the same meaning in all operations. */
const ABOUT_PARAMETERS: Readonly<Record<string, string>> = {
  action: 'Only entries with this action.',
  actor: 'Only entries by this person or program.',
  after: 'The `next` of a previous response.',
  anyAge: 'Accept a backup so old that revoked keys could work again.',
  author: 'Who makes the change. Named tokens already carry a name.',
  by: 'What to rank by. For usage, what to sum by: day, key, or tag:<name>.',
  code: 'Only requests with this error code.',
  dryRun: 'Write nothing, and return what would be restored.',
  from: 'The start of the period.',
  id: 'The id.',
  keyId: 'Only requests with this key.',
  limit: 'The maximum number of entries.',
  minutes: 'The number of minutes to look back.',
  name: 'Only keys whose name contains this text, ignoring case.',
  near: 'Only keys that have used at least this percentage of their day limit.',
  offset:
    'The number of keys to skip, or the `next` of a previous response. Only a list with the newest keys first can skip keys.',
  plan: 'The plan.',
  q: 'Only requests whose id, path, address, key id, code or outcome contains this text.',
  reason: 'Why the change is made.',
  requestId: 'The id of the request.',
  secretId: 'The id of the secret.',
  sort: 'The sort order.',
  state: 'Only keys in this state.',
  status: 'Only requests with this status, such as 429, or this class, such as 4xx.',
  tag: 'Only keys with this tag, such as customer:acme. If repeated, keys must have all of the tags.',
  target: 'Only entries about this key, plan or token.',
  text: 'A name or part of one, a key id or its beginning, or a request id.',
  to: 'The end of the period: exclusive for a time, inclusive for a day.',
  unusedSeconds: 'Only keys that have been unused for this many seconds.',
};

const ANSWERS = Object.entries<unknown>(answers).filter(
  (one): one is [string, z.ZodType] => one[1] instanceof z.ZodType,
);

/** Schemas are named after the exports of answers.ts, and those of request bodies after their operations. */
export function describeOperations(routes: readonly AdminRoute[]) {
  const bodies = routes.flatMap(({ name, body }) => (body === undefined ? [] : [[bodyName(name), body] as const]));
  const used = [...new Set(routes.map(({ path }) => tagOf(path)))];
  const paths: Paths = {};
  const schemas: Readonly<Record<string, Schema>> = {
    ...schemasOf(ANSWERS, 'output'),
    ...schemasOf(bodies, 'input'),
    Error: errorSchema(CODES),
  };
  for (const route of routes)
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operationOf(route) };
  return {
    openapi: '3.1.0',
    info: {
      title: 'Animal store gateway: admin API',
      version: '1.0.0',
      description: DESCRIPTION,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/', description: 'The admin listener of this gateway.' }],
    security: [{ operatorToken: [] }],
    tags: used.map((name) => ({ name, description: `Operations of /${name}.` })),
    paths,
    components: {
      schemas,
      headers: { 'X-Request-Id': { ...HEADERS['X-Request-Id'], schema: { type: 'string' } } },
      parameters: {},
      responses: Object.fromEntries([...ERRORS.values()].map(({ name, response }) => [name, response])),
      securitySchemes: {
        operatorToken: { type: 'http', scheme: 'bearer', description: "ADMIN_TOKEN or an operator's token." },
      },
    },
  };
}

const tagOf = (path: string): string => path.split('/')[1] ?? '';
const bodyName = (operation: string): string => `${operation.charAt(0).toUpperCase()}${operation.slice(1)}Body`;

function schemasOf(named: readonly (readonly [string, z.ZodType])[], io: 'input' | 'output'): Record<string, Schema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of named) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, { ...FOR_GENERATORS, io });
  return Object.fromEntries(Object.entries(schemas).map(([id, { $schema, $id, ...schema }]) => [id, schema]));
}

function operationOf(route: AdminRoute): Operation {
  const { name, method, path, summary, needs, body, isBodyOptional, isVersioned } = route;
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter = '']) =>
    parameterOf(parameter, 'path', { type: 'string' }, true),
  );
  return {
    operationId: name,
    tags: [tagOf(path)],
    summary,
    description: `Needs the ${roleFor(method, needs)} role.`,
    parameters: [...inPath, ...queryParameters(route), ...(isVersioned && method === 'PATCH' ? [IF_MATCH] : [])],
    ...(body && {
      requestBody: {
        required: isBodyOptional !== true,
        description: summary,
        content: { 'application/json': { schema: refTo('schemas', bodyName(name)) } },
      },
    }),
    responses: {
      ...successOf(route),
      ...Object.fromEntries(errorsOf(route).map((at) => [at, refTo('responses', ERRORS.get(at)?.name ?? '')])),
    },
  };
}

function successOf({ answer, summary, creates, isVersioned }: AdminRoute) {
  const headers = { ...EVERYWHERE, ...(isVersioned && { ETag: ETAG, Warning: WARNING }) };
  if (answer === undefined) return { 204: { description: 'Done.', headers } };
  const id = ANSWERS.find(([, schema]) => schema === answer)?.[0];
  const schema = id === undefined ? jsonSchema(answer) : refTo('schemas', id);
  return {
    [creates ? 201 : 200]: { description: `${summary}.`, headers, content: { 'application/json': { schema } } },
  };
}

const errorsOf = ({ method, path, body, errors = [] }: AdminRoute): number[] => {
  const implied = [
    ...(path.includes('{') ? [404] : []),
    ...(method === 'GET' ? [] : [409]),
    ...(body === undefined ? [] : [413, 415]),
  ];
  return [...new Set([...COMMON_ERRORS, ...implied, ...errors])].sort();
};

function queryParameters(route: AdminRoute): Parameter[] {
  return Object.entries(parametersOf(route)).map(([name, schema]) => {
    const isRequired = !schema.safeParse(undefined).success;
    const fallback = isRequired ? undefined : schema.parse(undefined);
    const written = { ...jsonSchema(schema), ...(fallback !== undefined && { default: fallback }) };
    return parameterOf(name, 'query', written, isRequired);
  });
}

function parameterOf(name: string, place: Parameter['in'], schema: Schema, required: boolean): Parameter {
  const description = ABOUT_PARAMETERS[name];
  if (description === undefined) throw new Error(`The parameter ${name} is not described.`);
  return { name, in: place, required, description, schema };
}

function jsonSchema(schema: z.core.$ZodType): Schema {
  const { $schema, ...written } = z.toJSONSchema(schema, { ...FOR_GENERATORS, io: 'output' });
  return written;
}
