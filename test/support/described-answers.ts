import type { IncomingHttpHeaders } from 'node:http';
import { describeOperations } from '../../gateway/operators/api/openapi.ts';
import { ROUTES as OPERATIONS } from '../../gateway/operators/api/routes.ts';
import type { Header, Paths, Ref, Response, Responses } from '../../gateway/reference/document.ts';
import { describeApi } from '../../gateway/reference/openapi.ts';
import { createRouter } from '../../shared/http/service.ts';
import { schemaValidator } from './json-schema.ts';

/**
 * Compares the status, headers and body of the answers that tests get from a gateway with the descriptions of its two
 * APIs. Every required header must be present, and every header must be described, so answers and descriptions cannot
 * drift apart.
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

/** Headers of HTTP itself, which every answer may have. */
const TRANSPORT = new Set([
  ...['connection', 'content-length', 'content-type', 'date', 'keep-alive', 'transfer-encoding'],
  ...['vary', 'access-control-allow-origin', 'access-control-expose-headers'],
  ...['strict-transport-security', 'x-content-type-options'],
]);

const ajv = schemaValidator();

/** Reads a description and makes its references absolute, so that they also resolve outside the document. */
function readDocument<D extends { readonly paths: Paths }>(document: D, id: string, prefix: string) {
  const api = JSON.parse(JSON.stringify(document).replaceAll('"#/', `"${id}#/`)) as D;
  ajv.addSchema(api, id);
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { responses }]) => {
      return { method: method.toUpperCase(), path: prefix + path, responses };
    }),
  );
  return { api, router: createRouter(operations) };
}

const store = describeApi();
const { api, router } = readDocument(store, 'api', store.servers[0]?.url ?? '');
const operators = readDocument(describeOperations(OPERATIONS), 'operators', '');
const DOCUMENTS: Readonly<Record<string, unknown>> = { api, operators: operators.api };

const ALL_RESPONSES: readonly Responses[] = [
  ...Object.values(api.paths).flatMap((methods) => Object.values(methods).map(({ responses }) => responses)),
  api['x-no-operation'],
];

interface Known {
  /** The URLs of the cores, if this is a gateway. */
  readonly coreUrls?: string;
  readonly isForOperators?: true;
}

/** The registered servers by URL. */
const known = new Map<string, Known>();

/**
 * From now on, checks every response from the given services against its API description. For responses from a foreign
 * core, only the headers that the gateway adds are checked.
 * @param addresses the URLs of a core, and of a gateway's listeners for clients and for operators
 * @param coreUrls the cores of the gateway
 * @returns a function that ends the checks. Call it when the services stop, because other servers may get their ports
 */
export function knowServices(
  { core, gateway, admin }: { readonly [name: string]: string | undefined },
  coreUrls = '',
): () => void {
  const services = new Map<string | undefined, Known>([
    [core, {}],
    [gateway, { coreUrls }],
    [admin, { isForOperators: true }],
  ]);
  for (const [url, service] of services) if (url !== undefined) known.set(url, service);
  return () => {
    for (const [url, service] of services) if (url !== undefined && known.get(url) === service) known.delete(url);
  };
}

const isCore = (url: string): boolean => known.has(url) && known.get(url)?.coreUrls === undefined;

const isOurs = ({ status }: Seen, coreUrls: string): boolean => status >= 400 || coreUrls.split(',').every(isCore);

/** @throws {Error} with every difference between the answer and the description */
export function checkAnswer({ url, method }: Asked, answer: Seen): void {
  const { origin, pathname } = new URL(url);
  const { coreUrls, isForOperators } = known.get(origin) ?? {};
  if (isForOperators) report(faultsOfOperators(method, url, answer), { url, method }, answer);
  if (coreUrls === undefined) return;
  const isPreflight = method === 'OPTIONS' && answer.status === 204;
  const isWhole = isOurs(answer, coreUrls) && !isPreflight && !isOfReference(pathname, answer);
  report(
    isWhole ? faultsOf(method, url, answer) : faultsOfRequired(answer.headers, everywhere),
    { url, method },
    answer,
  );
}

function report(faults: readonly string[], { url, method }: Asked, { status, text }: Seen): void {
  if (faults.length === 0) return;
  const { pathname } = new URL(url);
  throw new Error(`${method} ${pathname}: ${status} is not as described: ${faults.join('; ')}.\n${text}`);
}

/** Pages, probes and unknown paths are not operations, and are not checked. */
function faultsOfOperators(method: string, url: string, { headers, ...answer }: Seen): string[] {
  const { 'cache-control': _, ...described } = headers;
  const responses = operators.router.lookUp(method, pathOf(url))?.route.responses;
  const response = responses?.[answer.status];
  if (responses === undefined) return [];
  if (response === undefined) return ['no such status is described'];
  return faultsAgainst(response, method, { ...answer, headers: described });
}

/** The path as it was sent, without normalization. */
const pathOf = (url: string): string => url.slice(url.indexOf('/', url.indexOf('://') + 3)).split('?')[0] ?? '';

/**
 * Checks the answers in the bytes of a connection. The operation is unknown, so any described answer may match.
 * Incomplete answers are ignored.
 */
export function checkBytes(url: string, received: string): void {
  const coreUrls = known.get(new URL(url).origin)?.coreUrls;
  if (coreUrls === undefined) return;
  for (const answer of answersIn(received)) {
    const candidates = ALL_RESPONSES.flatMap((responses) => responses[answer.status] ?? []);
    const faults = candidates.map((response) => faultsAgainst(response, 'GET', answer));
    const isDescribed = faults.some((found) => found.length === 0);
    if (!isDescribed && isOurs(answer, coreUrls))
      throw new Error(`${answer.status} is not as described: ${faults[0]?.join('; ')}.\n${answer.text}`);
  }
}

const isOfReference = (path: string, { status, headers }: Seen): boolean =>
  (status < 400 || headers['content-type']?.startsWith('text/html') === true) &&
  (path === '/v1/openapi.json' || path === '/docs' || path.startsWith('/docs/'));

/** The headers that every answer has, regardless of its status. */
const everywhere = resolved<Response>(api.components.responses.BadRequest as Response).headers;

function faultsOf(method: string, url: string, answer: Seen): string[] {
  // The possible answers of the operation, or those to an unknown path or method.
  const responses = router.lookUp(method, pathOf(url))?.route.responses ?? api['x-no-operation'];
  const response = responses[answer.status];
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
  if (headers['content-type'] !== 'application/json') return [`the content type is ${headers['content-type']}`];
  try {
    return ajv.validate(schema, JSON.parse(text)) ? [] : [`the body: ${ajv.errorsText()}`];
  } catch {
    return ['the body is not JSON'];
  }
}

/** The target of a reference, or the value itself. */
function resolved<T extends object>(part: T | Ref): T {
  if (!('$ref' in part)) return part;
  const [document = '', ...names] = part.$ref.split(/#?\//);
  return names.reduce<unknown>((inside, name) => (inside as Record<string, unknown>)[name], DOCUMENTS[document]) as T;
}

/** The answers in the bytes of a connection, without interim ones (1xx). */
export function answersIn(received: string): Seen[] {
  const answers: Seen[] = [];
  for (let rest = received; ; ) {
    const found = /^HTTP\/1\.1 (\d{3}) [^\r]*\r\n([\s\S]*?)\r\n\r\n/.exec(rest);
    if (found === null) return answers;
    const [head, status, lines = ''] = found;
    const headers = Object.fromEntries(lines.split('\r\n').map(headerOf));
    const end = head.length + Number(headers['content-length'] ?? 0);
    if (end > rest.length) return answers;
    // The bytes were read as Latin-1, but the body is UTF-8.
    const text = Buffer.from(rest.slice(head.length, end), 'latin1').toString();
    if (Number(status) >= 200) answers.push({ status: Number(status), headers, text });
    rest = rest.slice(end);
  }
}

function headerOf(line: string): [name: string, value: string] {
  const colon = line.indexOf(': ');
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 2)];
}
