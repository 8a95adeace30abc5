import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { ERRORS } from '../../shared/http/errors.ts';
import { PLAN_NAMES, type PlanTable } from '../limiter/plans.ts';
import { usualBanAfter } from '../limiter/refusals.ts';
import type { GatewayRoute } from '../routes.ts';
import { etagOf, safetyHeaders } from '../static-file.ts';
import type { CodeSample, Document, Operation, Parameter, Ref, Response, Schema } from './document.ts';
import { describeApi } from './openapi.ts';
import { API } from './operations.ts';

/**
 * The API reference consists of exactly these files under these paths, kept in memory. The page shows the plans that
 * are in force. It is custom, because no known renderer shows the limits of the reader's key or puts the key into the
 * samples. Besides, Swagger UI takes 12 MB, and Scalar needs inline styles and its vendor's proxy.
 */
export interface Reference {
  /** Undefined if there is no such file. */
  get(path: string): ReferenceFile | undefined;
}

const DOCUMENT = '/v1/openapi.json';
const PAGE = '/docs/';
const OUR_PAGE = join(import.meta.dirname, 'page');

/**
 * The limit per address. Hundreds of people behind one address can visit in a minute, and no address can download more
 * than 4 MB a second.
 */
export const READS_PER_MINUTE = 4_000;
/** A file costs one more read for each multiple of this size. */
const BYTES_PER_READ = 65_536;

/** The file is revalidated each time, with a 304 while unchanged. */
const OURS = 'no-cache';
/** A redirect never changes. */
const A_DAY = 'public, max-age=86400';
/** With a version in the query a file never changes, so a reload need not request it. */
const FOR_EVER = 'public, max-age=31536000, immutable';

const FILES = {
  'page.css': 'text/css; charset=utf-8',
  'parts.css': 'text/css; charset=utf-8',
  'page.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
};

const SAFETY = safetyHeaders("img-src 'self'");

const gzipped = promisify(gzip);

/** A file of the reference, as an operation that the gateway answers itself. */
export class ReferenceFile implements GatewayRoute {
  readonly operation = 'reference';
  readonly method = 'GET';
  readonly takesBody = false;
  readonly path: string;
  readonly status: number;
  readonly body: Buffer;
  readonly etag: string;
  /** The version that the page puts into the query. */
  readonly version: string;
  readonly #keep: string;
  /** The headers of every response with this file, including 304. Cache-Control is added separately. */
  readonly headers: readonly string[];
  #compressed: Promise<Buffer> | undefined;

  constructor(path: string, status: number, body: Buffer, keep: string, headers: readonly string[]) {
    this.path = path;
    this.status = status;
    this.body = body;
    this.etag = etagOf(body);
    this.version = `v=${this.etag.slice('W/"'.length, -1)}`;
    this.#keep = keep;
    this.headers = ['ETag', this.etag, 'Vary', 'Accept-Encoding', ...SAFETY, ...headers];
  }

  /** The cost of sending the file, in reads of the client address. */
  get cost(): number {
    return 1 + Math.floor(this.body.length / BYTES_PER_READ);
  }

  /** How long the response may be cached. @param query of the request */
  cacheControl(query: string): string {
    return query === this.version ? FOR_EVER : this.#keep;
  }

  /** The file is compressed on first use. */
  compressed(): Promise<Buffer> {
    this.#compressed ??= gzipped(this.body);
    return this.#compressed;
  }
}

/**
 * Describes the API and reads the files once.
 * @param plans returns the plans in force; the page is rendered again when they have changed
 * @throws the system's error if a file is missing
 */
export function loadReference(plans: () => PlanTable): Reference {
  const api = describeApi();
  const document = Buffer.from(JSON.stringify(api, undefined, 2));
  const readable = ['Content-Type', 'application/json', 'Access-Control-Allow-Origin', '*'];
  const files = [
    new ReferenceFile(DOCUMENT, 200, document, OURS, readable),
    ...Object.entries(FILES).map(
      ([name, type]) =>
        new ReferenceFile(PAGE + name, 200, readFileSync(join(OUR_PAGE, name)), OURS, ['Content-Type', type]),
    ),
  ];
  const slash = new ReferenceFile('/docs', 308, Buffer.alloc(0), A_DAY, ['Location', PAGE]);
  const fixed = new Map([...files, slash].map((file) => [file.path, file]));
  const text = withParts(readFileSync(join(OUR_PAGE, 'index.html'), 'utf8'), operationParts(api));
  const template = withVersions(text, files);
  const rendered = (plans: PlanTable) => Buffer.from(withParts(template, pageParts(plans)));
  let shown = plans();
  let page = pageFile(rendered(shown));
  return {
    get(path) {
      if (path !== PAGE) return fixed.get(path);
      const now = plans();
      if (now !== shown) {
        shown = now;
        const body = rendered(now);
        if (!page.body.equals(body)) page = pageFile(body);
      }
      return page;
    },
  };
}

const pageFile = (body: Buffer): ReferenceFile =>
  new ReferenceFile(PAGE, 200, body, OURS, ['Content-Type', 'text/html; charset=utf-8']);

/** Replaces the marks in the page with their parts. */
const withParts = (template: string, parts: Readonly<Record<string, string>>): string =>
  Object.entries(parts).reduce((text, [mark, part]) => text.replaceAll(`<!-- ${mark} -->`, () => part), template);

/** Puts the current version of each file into its URLs in the page, so that browsers can cache them. */
const withVersions = (page: string, files: readonly ReferenceFile[]): string =>
  files.reduce((text, { path, version }) => {
    const name = path.replace(PAGE, '');
    return text.replaceAll(new RegExp(`(<(?:link|script) [^>]*(?:href|src)="${name})"`, 'g'), `$1?${version}"`);
  }, page);

/** Renders the API's name and its operations, keyed by their marks in the page. Request and response are side by side. */
function operationParts(api: Document): Readonly<Record<string, string>> {
  const base = api.servers[0]?.url ?? '';
  const all = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path: base + path,
      operation,
    })),
  );
  const isCommon = (status: string) =>
    all.filter(({ operation }) => status in operation.responses).length * 2 > all.length;
  return {
    title: escaped(API.title),
    summary: inline(API.summary),
    first: all.find(({ method, path }) => method === 'GET' && !path.includes('{'))?.path ?? '',
    operations: all.map((one) => operationPart(api, one, isCommon)).join('\n'),
    contents: all
      .map(({ operation: { operationId, summary } }) => `<li><a href="#${operationId}">${escaped(summary)}</a></li>`)
      .join('\n'),
  };
}

function operationPart(
  api: Document,
  { method, path, operation }: { method: string; path: string; operation: Operation },
  isCommon: (status: string) => boolean,
): string {
  const { operationId: id, summary, description, deprecated, parameters, requestBody, responses } = operation;
  const { 'x-codeSamples': samples = [], 'x-try-it-out': canBeTried = true } = operation;
  const body = requestBody?.content['application/json'];
  const [status = '', success] = Object.entries(responses)[0] ?? [];
  const { description: meaning, content } = resolved(api, success as Response | Ref);
  const errors = Object.keys(responses).filter((one) => Number(one) >= 400 && !isCommon(one));
  const answer = content?.['application/json'];
  return `<section class="operation" id="${id}" data-method="${method}" data-path="${path}" aria-labelledby="${id}-name">
<h3 id="${id}-name"><span class="method ${method.toLowerCase()}">${method}</span> <code>${escaped(path)}</code> <span>${escaped(summary)}</span>${deprecated ? ' <span class="deprecated">deprecated</span>' : ''}</h3>
${description
  .split('\n\n')
  .map((one) => `<p>${inline(one)}</p>`)
  .join('\n')}
<form>
${tableOf(
  'Parameters',
  parameters.map((one) => parameterRow(id, resolved(api, one), canBeTried)),
)}
${body ? `${tableOf('Body', fieldRows(api, body.schema))}` : ''}
<div class="call">
<div class="request">
<div class="head"><h4>Request</h4>${languages(samples)}<button type="button" class="copy" aria-live="polite">Copy</button></div>
${samples
  .map(
    ({ label, source }, at) =>
      `<pre data-language="${label}"${at > 0 ? ' hidden' : ''}><code>${escaped(source)}</code></pre>`,
  )
  .join('\n')}
${body && canBeTried ? `<label for="${id}-body">Body to send</label><textarea id="${id}-body" rows="5" spellcheck="false">${pretty(body.example)}</textarea>` : ''}
${canBeTried ? '<button type="submit" class="send">Send request</button>' : ''}
</div>
<div class="answer">
<div class="head"><h4>Response</h4><span class="status" role="status">${status} · example</span><button type="button" class="copy" aria-live="polite">Copy</button></div>
<pre tabindex="0"><code>${answer ? pretty(answer.example) : 'No body'}</code></pre>
<details class="headers" hidden><summary>Headers</summary><pre tabindex="0"></pre></details>
</div>
</div>
</form>
${answer ? `<details><summary>Fields of the response</summary>${tableOf('Fields of the response', fieldRows(api, answer.schema))}</details>` : ''}
<p class="outcomes"><b>${status}</b> ${inline(meaning)} ${errors.map(errorLinks).join('')} <a href="#errors">Errors of every operation</a></p>
</section>`;
}

const languages = (samples: readonly CodeSample[]): string =>
  `<div role="group" aria-label="Language">${samples
    .map(
      ({ label }, at) => `<button type="button" data-language="${label}" aria-pressed="${at === 0}">${label}</button>`,
    )
    .join('')}</div>`;

/** Renders the errors with a status, each with a link to its remedy. */
const errorLinks = (status: string): string =>
  Object.entries(ERRORS)
    .filter(([, error]) => String(error.status) === status)
    .map(([code]) => `<a href="#error-${code}"><b>${status}</b> <code>${code}</code></a> `)
    .join('');

const tableOf = (name: string, rows: readonly string[]): string =>
  `<table class="fields"><caption>${name}</caption><tbody>${rows.join('\n')}</tbody></table>`;

function parameterRow(operation: string, parameter: Parameter & { schema: Schema }, canBeTried: boolean): string {
  const { name, required, description, schema } = parameter;
  const id = `${operation}-${name}`;
  const label = `<code>${name}</code>`;
  const about = `<td>${inline(description)} <span class="quiet">${[parameter.in, ...typeOf(schema), ...(required ? ['required'] : [])].join(', ')}</span></td>`;
  if (!canBeTried) return `<tr><th scope="row">${label}</th>${about}</tr>`;
  return `<tr><th scope="row"><label for="${id}">${label}</label></th>${about}<td>${fieldOf(id, parameter)}</td></tr>`;
}

function fieldOf(id: string, { name, in: place, required, schema }: Parameter): string {
  const attributes = `id="${id}" name="${name}" data-in="${place}"`;
  const values = valuesOf(schema);
  if (values !== undefined)
    return `<select ${attributes}><option value="">any</option>${values.map((value) => `<option>${value}</option>`).join('')}</select>`;
  const example = [schema.examples].flat()[0];
  return `<input ${attributes} autocomplete="off" spellcheck="false"${required ? ` required value="${escaped(String(example))}"` : ''} />`;
}

/** Renders the members of an object, or of the objects in a list, and their own members in turn. */
function fieldRows(api: Document, given: Schema, prefix = ''): string[] {
  const schema = objectIn(api, given);
  const required = new Set(schema.required as string[] | undefined);
  return Object.entries((schema.properties ?? {}) as Record<string, Schema>).flatMap(([name, member]) => {
    const { description = '', ...type } = resolved(api, member);
    const about = [...typeOf(type), ...(required.has(name) ? [] : ['optional'])].join(', ');
    const row = `<tr><th scope="row"><code>${prefix}${name}</code></th><td>${inline(String(description))} <span class="quiet">${about}</span></td></tr>`;
    return [row, ...fieldRows(api, member, `${prefix}${name}${type.type === 'array' ? '[]' : ''}.`)];
  });
}

/** Finds the object in a value that is an object, a list of objects, or an object or null. */
function objectIn(api: Document, given: Schema): Schema {
  const schema = resolved(api, given);
  const inner = schema.items ?? (schema.anyOf as Schema[] | undefined)?.[0];
  return inner === undefined ? schema : objectIn(api, inner as Schema);
}

const valuesOf = (schema: Schema): readonly string[] | undefined => schema.enum as string[] | undefined;

/** Describes a value's type in words. */
function typeOf(schema: Schema): string[] {
  const { type, format, minimum, maximum, minLength, maxLength, default: otherwise } = schema as Record<string, number>;
  const words = [type, format, schema.anyOf && 'object or null'].flat().filter((word) => word !== undefined);
  const isBounded = format === undefined && maximum !== undefined;
  return [
    words
      .join(' ')
      .replace('integer int64', '64-bit integer')
      .replace('string date-time', 'time')
      .replace('string date', 'date')
      .replace(' null', ' or null'),
    ...(valuesOf(schema) ? [`one of ${valuesOf(schema)?.join(', ')}`] : []),
    ...(isBounded ? [`${minimum} to ${maximum}`] : []),
    ...(maxLength === undefined ? [] : [`${minLength ?? 0} to ${maxLength} characters`]),
    ...(otherwise === undefined ? [] : [`default ${otherwise}`]),
  ].filter((word) => word !== '');
}

/** Resolves a reference and, for a parameter, also that of its schema. */
function resolved<T extends object>(api: Document, value: T | Ref): T & { schema: Schema } & Schema {
  const path = '$ref' in value ? (value as Ref).$ref.split('/').slice(1) : undefined;
  const found = (path?.reduce((part, name) => (part as Record<string, object>)[name] as object, api as object) ??
    value) as T & { schema: Schema } & Schema;
  return found.schema === undefined ? found : { ...found, schema: resolved(api, found.schema) };
}

/** Renders the parts that derive from tables and rules, keyed by their marks in the page. */
const pageParts = (plans: PlanTable): Readonly<Record<string, string>> => ({
  plans: plansTable(plans),
  example: workedExample(plans),
  errors: errorsTable(),
});

function plansTable(plans: PlanTable): string {
  const rows = PLAN_NAMES.map((plan) => {
    const { minute, day, ban_after = minute && usualBanAfter(minute), ban_seconds = 0 } = plans[plan];
    const limits = [minute, day].map((limit) => (limit === undefined ? 'by agreement' : number(limit)));
    const strikes = ban_after === undefined ? 'five times the minute limit' : number(ban_after);
    const banned = ban_seconds % 60 === 0 ? plural(ban_seconds / 60, 'minute') : plural(ban_seconds, 'second');
    return [
      `<th scope="row">${plan[0]?.toUpperCase()}${plan.slice(1)}</th>`,
      ...[...limits, strikes, banned].map((text) => `<td>${text}</td>`),
    ];
  });
  return rows.map((cells) => `<tr>${cells.join('')}</tr>`).join('\n');
}

/** Uses the first plan's own numbers. */
function workedExample({ free: { minute = 1, day = 1 } }: PlanTable): string {
  const [perMinute, perDay] = [60 / minute, 86_400 / day];
  const seconds = (value: number) => (Number.isInteger(value) ? number(value) : value.toFixed(1));
  return `<p>With ${plural(minute, 'request')} per minute, a token is refilled every ${seconds(perMinute)} s: after ${number(minute)} requests at once, the next one gets <code>Retry-After: ${Math.ceil(perMinute)}</code>. With ${number(day)} per day, a token is refilled every ${seconds(perDay)} s: once all are used, it gets <code>Retry-After: ${Math.ceil(perDay)}</code>.</p>`;
}

const errorsTable = (): string =>
  Object.entries(ERRORS)
    .map(
      ([code, { status, message, cure }]) =>
        `<tr id="error-${code}"><td>${status}</td><td><code>${code}</code></td><td>${message}<br />${inline(cure)}</td></tr>`,
    )
    .join('\n');

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** Renders backticks as code. */
const inline = (text: string): string => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');

/** @param value undefined without an example */
const pretty = (value: unknown): string => escaped(JSON.stringify(value, null, 2) ?? '');

const number = (value: number): string => value.toLocaleString('en-US');
const plural = (count: number, one: string): string => `${number(count)} ${one}${count === 1 ? '' : 's'}`;
