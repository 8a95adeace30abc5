import type { IncomingHttpHeaders } from 'node:http';
import type { Document, Header, Ref, Response, Responses } from '../../gateway/reference/document.ts';
import { describeApi } from '../../gateway/reference/openapi.ts';
import { createRouter } from '../../shared/routes.ts';
import { schemaValidator } from './json-schema.ts';

/**
 * Holds what the tests see of a gateway against the API's description: its status, its headers – those that must be there,
 * and none that is not described – and its body. So the two cannot drift apart.
 */

export interface Seen {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface Asked {
  readonly url: string;
  readonly method: string;
}

/** HTTP's own, on every answer or none. */
const TRANSPORT = new Set([
  ...['connection', 'content-length', 'content-type', 'date', 'keep-alive', 'transfer-encoding'],
  ...['vary', 'access-control-allow-origin', 'access-control-expose-headers'],
  'strict-transport-security',
]);

/** References are written so that they can be followed from outside the document. */
const api = JSON.parse(JSON.stringify(describeApi()).replaceAll('"#/', '"api#/')) as Document;
const ajv = schemaValidator();
ajv.addSchema(api, 'api');

const [{ url: prefix = '' } = {}] = api.servers;
const router = createRouter(
  Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { responses }]) => {
      return { method: method.toUpperCase(), path: prefix + path, responses };
    }),
  ),
);

const ALL_RESPONSES: readonly Responses[] = [
  ...Object.values(api.paths).flatMap((methods) => Object.values(methods).map(({ responses }) => responses)),
  api['x-no-operation'],
];

const cores = new Set<string>();
const gateways = new Map<string, string>();

/** From now on this is another server, though a core or a gateway may have had its port before. */
export function forget(url: string): void {
  cores.delete(url);
  gateways.delete(url);
}

/** From now on this is a core of ours, whose answers are as described. */
export function knowCore(url: string): void {
  forget(url);
  cores.add(url);
}

/**
 * From now on, the answers of this gateway are checked. What it passes on from a core that is not ours is that core's, and
 * need only carry what the gateway adds to all.
 */
export function knowGateway(url: string, coreUrls: string): void {
  forget(url);
  gateways.set(url, coreUrls);
}

const isOurs = ({ status }: Seen, coreUrls: string): boolean =>
  status >= 400 || coreUrls.split(',').every((core) => cores.has(core));

/** @throws {Error} naming every way in which the answer is not as described */
export function checkAnswer({ url, method }: Asked, answer: Seen): void {
  const { origin, pathname } = new URL(url);
  const coreUrls = gateways.get(origin);
  if (coreUrls === undefined) return;
  const isPreflight = method === 'OPTIONS' && answer.status === 204;
  const isWhole = isOurs(answer, coreUrls) && !isPreflight && !isOfReference(pathname, answer);
  const faults = isWhole ? faultsOf(method, url, answer) : faultsOfLimits(answer);
  if (faults.length > 0) {
    throw new Error(
      `${method} ${pathname}: ${answer.status} is not as described: ${faults.join('; ')}.\n${answer.text}`,
    );
  }
}

/**
 * The same for the bytes of a connection. Which operation they answer is not asked: some answer must be described so.
 * What was cut off in the middle is left out.
 */
export function checkBytes(url: string, received: string): void {
  const coreUrls = gateways.get(new URL(url).origin);
  if (coreUrls === undefined) return;
  for (const answer of answersIn(received)) {
    const candidates = ALL_RESPONSES.flatMap((responses) => responses[answer.status] ?? []);
    const faults = candidates.map((response) => faultsAgainst(response, 'GET', answer));
    const isDescribed = faults.some((found) => found.length === 0);
    if (!isDescribed && isOurs(answer, coreUrls)) {
      throw new Error(`${answer.status} is not as described: ${faults[0]?.join('; ')}.
${answer.text}`);
    }
  }
}

const isOfReference = (path: string, { status, headers }: Seen): boolean =>
  (status < 400 || headers['content-type']?.startsWith('text/html') === true) &&
  (path === '/v1/openapi.json' || path === '/docs' || path.startsWith('/docs/'));

/** What every answer carries, 404 for an unknown path as much as a page of animals. */
const everywhere = resolved<Response>(api.components.responses.BadRequest as Response).headers;
const faultsOfLimits = ({ headers }: Seen): string[] => faultsOfRequired(headers, everywhere);

function faultsOf(method: string, url: string, answer: Seen): string[] {
  const response = responsesTo(method, url)[answer.status];
  return response === undefined ? ['no such status is described'] : faultsAgainst(response, method, answer);
}

function faultsAgainst(response: Response | Ref, method: string, answer: Seen): string[] {
  const { headers, content } = resolved<Response>(response);
  return [
    ...faultsOfRequired(answer.headers, headers),
    ...faultsOfPresent(answer.headers, headers),
    ...(method === 'HEAD' || content === undefined
      ? faultsOfNoBody(answer)
      : faultsOfBody(answer, content['application/json'].schema)),
  ];
}

/** What the operation can answer; for a path or method that is none's, what is answered then. */
function responsesTo(method: string, url: string): Responses {
  const [path = ''] = url.slice(url.indexOf('/', url.indexOf('://') + 3)).split('?');
  try {
    return router.find(method, path).route.responses;
  } catch {
    return api['x-no-operation'];
  }
}

function faultsOfRequired(given: IncomingHttpHeaders, described: Response['headers']): string[] {
  const required = Object.entries(described).filter(([, header]) => resolved<Header>(header).required);
  return required.flatMap(([name]) => (given[name.toLowerCase()] === undefined ? [`${name} is missing`] : []));
}

function faultsOfPresent(given: IncomingHttpHeaders, described: Response['headers']): string[] {
  const byName = new Map(Object.entries(described).map(([name, header]) => [name.toLowerCase(), header]));
  return Object.entries(given).flatMap(([name, value]) => {
    if (TRANSPORT.has(name)) return [];
    const header = byName.get(name);
    if (header === undefined) return [`${name} is not described`];
    const { schema } = resolved<Header>(header);
    const read = schema.type === 'integer' && /^\d+$/.test(String(value)) ? Number(value) : value;
    return ajv.validate(schema, read) ? [] : [`${name} is ${value}: ${ajv.errorsText()}`];
  });
}

const faultsOfNoBody = ({ text }: Seen): string[] => (text === '' ? [] : ['HEAD has a body']);

function faultsOfBody({ headers, text }: Seen, schema: object): string[] {
  if (headers['content-type'] !== 'application/json') return [`its type is ${headers['content-type']}`];
  try {
    return ajv.validate(schema, JSON.parse(text)) ? [] : [`the body: ${ajv.errorsText()}`];
  } catch {
    return ['the body is no JSON'];
  }
}

/** What a reference stands for, or the thing itself. */
function resolved<T extends object>(part: T | Ref): T {
  if (!('$ref' in part)) return part;
  const [, ...names] = part.$ref.split('/');
  return names.reduce<unknown>((inside, name) => (inside as Record<string, unknown>)[name], api) as T;
}

/** The answers in the bytes of a connection, one behind the other; interim ones (1xx) are left out. */
export function answersIn(received: string): Seen[] {
  const answers: Seen[] = [];
  for (let rest = received; ; ) {
    const found = /^HTTP\/1\.1 (\d{3}) [^\r]*\r\n([\s\S]*?)\r\n\r\n/.exec(rest);
    if (found === null) return answers;
    const [head, status, lines = ''] = found;
    const headers = Object.fromEntries(lines.split('\r\n').map(headerOf));
    const end = head.length + Number(headers['content-length'] ?? 0);
    if (end > rest.length) return answers;
    // The bytes came as Latin-1; what they mean is UTF-8.
    const text = Buffer.from(rest.slice(head.length, end), 'latin1').toString();
    if (Number(status) >= 200) answers.push({ status: Number(status), headers, text });
    rest = rest.slice(end);
  }
}

function headerOf(line: string): [name: string, value: string] {
  const colon = line.indexOf(': ');
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 2)];
}
