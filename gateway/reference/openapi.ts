import { type GatewayRoute, ROUTES } from '../routes.ts';
import {
  ALLOW,
  type CodeSample,
  deprecationHeaders,
  ERROR_RESPONSES,
  EVERYWHERE,
  HEADERS,
  HELP,
  type Header,
  type Operation,
  type Parameter,
  type Paths,
  type Ref,
  type Response,
  type Responses,
  refTo,
  resolved,
} from './document.ts';
import { type About, API, COMMON_ERRORS, OPERATIONS, PARAMETERS, TAGS } from './operations.ts';
import { schemas } from './schemas.ts';

const PREFIX = '/v1';

const DESCRIPTION = `${API.summary}

**Authentication.** Send an API key as a bearer token: \`Authorization: Bearer <API_KEY>\`. A key that is missing,
malformed, unknown, expired or revoked always gets the same 401.

**Limits.** A plan allows a number of requests per minute and per day, refilled continuously. The
\`X-RateLimit-*\` headers of every response report what is left. A refused request costs nothing and gets 429, and
\`Retry-After\` is the wait for its place in line. Wait that long, then retry. A key that keeps sending more than nine
times its limit, without a pause, is banned. \`GET /limits\` returns the limits of a key and costs it nothing.

**HEAD** works wherever GET does, with the same headers and no body.`;

/** Generates the description of the public API from the route table, the core's schemas and the error table. */
export function describeApi() {
  const shared = [...ERROR_RESPONSES].filter(([status]) => !NO_OPERATION.includes(status));
  /** Responses to an unknown path or method. */
  const noOperation: Responses = {
    // The response to OPTIONS on every operation's path, and on `*`.
    204: { description: 'The methods of the path.', headers: { ...EVERYWHERE, Allow: ALLOW } },
    ...errorsOf(COMMON_ERRORS),
    ...Object.fromEntries(NO_OPERATION.map((status) => [status, errorOf(status).response])),
  };
  return {
    openapi: '3.1.0',
    info: { ...API, description: DESCRIPTION },
    servers: [{ url: PREFIX, description: 'This gateway.' }],
    security: [{ apiKey: [] }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths: paths(),
    components: {
      schemas: schemas(),
      headers: HEADERS,
      parameters: PARAMETERS,
      responses: Object.fromEntries(shared.map(([, { name, response }]) => [name, response])),
      securitySchemes: {
        apiKey: { type: 'http', scheme: 'bearer', bearerFormat: 'API key', description: 'Your key.' },
      },
    },
    'x-no-operation': noOperation,
  };
}

export type Document = ReturnType<typeof describeApi>;

/** The errors for an unknown path or method. No operation refers to their shared responses. */
const NO_OPERATION = [404, 405];

function paths(): Paths {
  const made: Paths = {};
  for (const route of ROUTES) {
    if (!route.path.startsWith(`${PREFIX}/`)) throw new Error(`${route.path} must begin with ${PREFIX}/.`);
    const path = route.path.slice(PREFIX.length);
    made[path] = { ...made[path], [route.method.toLowerCase()]: operationOf(route) };
  }
  return made;
}

function operationOf(route: GatewayRoute): Operation {
  const about = OPERATIONS[route.operation];
  if (about === undefined) throw new Error(`The operation ${route.operation} is not described.`);
  const { tag, summary, description, parameters, body, cannotBeTried } = about;
  return {
    operationId: route.operation,
    tags: [tag],
    summary,
    description:
      route.scope === undefined ? description : `${description}\n\nThe key needs the \`${route.scope}\` scope.`,
    ...(route.deprecation && { deprecated: true }),
    parameters,
    ...(body && { requestBody: { required: true, description: summary, content: body } }),
    responses: responsesOf(route, about),
    'x-codeSamples': samplesOf(route.method, exampleTarget(route, parameters), body?.['application/json'].example),
    ...(cannotBeTried && { 'x-try-it-out': false }),
  };
}

function responsesOf({ deprecation, scope }: GatewayRoute, { success, errors = [] }: About): Responses {
  const { status, description, content, headers = {} } = success;
  const always = deprecation === undefined ? {} : deprecationHeaders(deprecation, true);
  const responses = {
    [status]: { description, headers: { ...EVERYWHERE, ...headers, ...always }, content },
    ...errorsOf([...COMMON_ERRORS, ...(scope === undefined ? [] : [403]), ...errors]),
  };
  return deprecation === undefined ? responses : withDeprecation(responses, deprecation);
}

const errorsOf = (statuses: readonly number[]): Responses =>
  Object.fromEntries(statuses.map((status) => [status, refTo('responses', errorOf(status).name)]));

function errorOf(status: number) {
  const error = ERROR_RESPONSES.get(status);
  if (error === undefined) throw new Error(`No error has the status ${status}.`);
  return error;
}

/** Errors that occur after routing. Those that also occur before it have the deprecation headers only sometimes. */
const AFTER_ROUTING: Readonly<Record<number, 'always' | 'sometimes'>> = {
  400: 'sometimes',
  404: 'always',
  500: 'sometimes',
  502: 'always',
  503: 'sometimes',
  504: 'always',
};

/** An error of a deprecated operation has two links, which some clients join. */
function andHelp({ schema, ...link }: Header): Header {
  const own = String(schema.const).replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const help = String(HELP.schema.pattern).slice(1, -1);
  return {
    ...link,
    schema: { type: 'string', pattern: `^(?:${own}, )?${help}$` },
    example: `${link.example}, ${HELP.example}`,
  };
}

function withDeprecation(responses: Responses, deprecation: readonly string[]): Responses {
  const entries = Object.entries(responses).map(([status, response]): [string, Response | Ref] => {
    const when = AFTER_ROUTING[Number(status)];
    if (when === undefined) return [status, response];
    const shared = errorOf(Number(status)).response;
    const { Link, ...others } = deprecationHeaders(deprecation, when === 'always');
    return [status, { ...shared, headers: { ...shared.headers, ...others, ...(Link && { Link: andHelp(Link) }) } }];
  });
  return Object.fromEntries(entries);
}

/**
 * The path of an operation with examples in place of its parameters, and the required query.
 * @throws {Error} for a parameter without an example
 */
function exampleTarget({ operation, path }: GatewayRoute, parameters: About['parameters']): string {
  const components = { parameters: PARAMETERS, schemas: schemas() };
  const all = parameters.map((one) => resolved<Parameter>({ components }, one));
  const needed = all.filter(({ required }) => required);
  const exampleOf = (wanted: string) => {
    const [example] = [needed.find(({ name }) => name === wanted)?.schema.examples].flat();
    if (example === undefined)
      throw new Error(`The parameter ${wanted} of ${operation} must be required, with an example in its schema.`);
    return String(example);
  };
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name) => encodeURIComponent(exampleOf(name)));
  const query = needed.filter((one) => one.in === 'query').map(({ name }) => [name, exampleOf(name)]);
  return query.length === 0 ? filled : `${filled}?${new URLSearchParams(Object.fromEntries(query))}`;
}

/** These put text in single quotes: the first one for the shell, the second one for JavaScript and Python. */
const inShell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const inQuotes = (text: string): string => `'${text.replaceAll(/[\\']/g, '\\$&')}'`;

/** The address of a gateway of `npm start`. The page replaces it with its own origin. */
export const SAMPLE_ORIGIN = 'http://127.0.0.1:8080';

/**
 * Shows how to call an operation in three languages. The key comes from the environment, so no sample shows one.
 * @param target contains example values in place of parameters
 * @param example the body; undefined if there is none
 */
function samplesOf(method: string, target: string, example: unknown): CodeSample[] {
  const url = SAMPLE_ORIGIN + target;
  const body = JSON.stringify(example) ?? '';
  const usual = example === undefined ? 'GET' : 'POST';
  const ifAny = (...lines: readonly string[]) => (example === undefined ? [] : lines);
  const unlessGet = (line: string) => (method === 'GET' ? [] : [line]);
  const curl = [
    `curl -i${method === usual ? '' : ` -X ${method}`} ${inShell(url)}`,
    '-H "Authorization: Bearer $KEY"',
    ...ifAny("-H 'Content-Type: application/json'", `-d ${inShell(body)}`),
  ];
  const javaScript = [
    `const response = await fetch(${inQuotes(url)}, {`,
    ...unlessGet(`  method: '${method}',`),
    `  headers: { Authorization: 'Bearer ' + process.env.KEY${ifAny(", 'Content-Type': 'application/json'").join()} },`,
    ...ifAny(`  body: ${inQuotes(body)},`),
    '});',
    'console.log(response.status, await response.text());',
  ];
  const python = [
    'import os, urllib.request',
    '',
    'request = urllib.request.Request(',
    `    "${url}",`,
    ...unlessGet(`    method="${method}",`),
    ...ifAny(`    data=${inQuotes(body)}.encode(),`),
    `    headers={"Authorization": "Bearer " + os.environ["KEY"]${ifAny(', "Content-Type": "application/json"').join()}},`,
    ')',
    'with urllib.request.urlopen(request) as response:',
    '    print(response.status, response.read().decode())',
  ];
  return [
    { lang: 'Shell', label: 'curl', source: curl.join(' \\\n  ') },
    { lang: 'JavaScript', label: 'fetch', source: javaScript.join('\n') },
    { lang: 'Python', label: 'Python', source: python.join('\n') },
  ];
}
