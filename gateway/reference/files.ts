import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { ERRORS } from '../../shared/http/errors.ts';
import { PLAN_NAMES, type PlanTable } from '../limiter/plans.ts';
import { usualBanAfter } from '../limiter/refusals.ts';
import { etagOf, safetyHeaders } from '../static-file.ts';
import { type Operation, type Parameter, type Ref, type Response, resolved, type Schema } from './document.ts';
import { type Document, describeApi } from './openapi.ts';
import { API } from './operations.ts';

/**
 * The API reference: the files below, under fixed paths and kept in memory. The page shows the plans in force. It is
 * custom, because no known renderer shows the limits of the reader's key or puts the key into the samples. Besides,
 * Swagger UI takes 12 MB, and Scalar needs inline styles and its vendor's proxy.
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

/** The file is revalidated each time, with a 304 if it is unchanged. */
const OURS = 'no-cache';
/** A redirect never changes. */
const A_DAY = 'public, max-age=86400';
/** Under a URL with its version, a file never changes, so a reload need not request it. */
const FOR_EVER = 'public, max-age=31536000, immutable';

const FILES = {
  'page.css': 'text/css; charset=utf-8',
  'parts.css': 'text/css; charset=utf-8',
  'page.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
};

const SAFETY = safetyHeaders("img-src 'self'");

const gzipped = promisify(gzip);

/** A reference file, as an operation that the gateway answers itself. */
function referenceFile(path: string, status: number, body: Buffer, keep: string, headers: readonly string[]) {
  const etag = etagOf(body);
  const version = `v=${etag.slice('W/"'.length, -1)}`;
  let compressed: Promise<Buffer> | undefined;
  return {
    operation: 'reference',
    method: 'GET',
    takesBody: false,
    path,
    status,
    body,
    etag,
    /** The version that the page puts into the query. */
    version,
    /** The headers of every response with this file, including 304. Cache-Control is added separately. */
    headers: ['ETag', etag, 'Vary', 'Accept-Encoding', ...SAFETY, ...headers],
    /** The number of reads that sending the file costs the client's address. */
    cost: 1 + Math.floor(body.length / BYTES_PER_READ),
    /** How long the response may be cached. @param query of the request */
    cacheControl: (query: string) => (query === version ? FOR_EVER : keep),
    /** The file is compressed on first use. */
    compressed: () => {
      compressed ??= gzipped(body);
      return compressed;
    },
  } as const;
}

export type ReferenceFile = ReturnType<typeof referenceFile>;

/**
 * Describes the API and reads the files once.
 * @param plans returns the plans in force; the page is rendered again when they have changed
 * @throws the system's error if a file is missing
 */
export function loadReference(plans: () => PlanTable): Reference {
  const api = describeApi();
  const document = Buffer.from(JSON.stringify(api, undefined, 2));
  const readable = ['Content-Type', 'application/json', 'Access-Control-Allow-Origin', '*'];
  const read = (name: string) => readFileSync(join(OUR_PAGE, name));
  const files = [
    referenceFile(DOCUMENT, 200, document, OURS, readable),
    ...Object.entries(FILES).map(([name, type]) =>
      referenceFile(PAGE + name, 200, read(name), OURS, ['Content-Type', type]),
    ),
  ];
  const slash = referenceFile('/docs', 308, Buffer.alloc(0), A_DAY, ['Location', PAGE]);
  const fixed = new Map([...files, slash].map((file) => [file.path, file]));
  const template = withVersions(withParts(read('index.html').toString(), fixedParts(api)), files);
  const rendered = (plans: PlanTable) => {
    const body = Buffer.from(withParts(template, { plans: plansTable(plans), example: workedExample(plans) }));
    return referenceFile(PAGE, 200, body, OURS, ['Content-Type', 'text/html; charset=utf-8']);
  };
  let shown = plans();
  let page = rendered(shown);
  return {
    get(path) {
      if (path !== PAGE) return fixed.get(path);
      const now = plans();
      if (now !== shown) page = rendered(now);
      shown = now;
      return page;
    },
  };
}

/** Replaces the marks in the page with their parts. */
const withParts = (template: string, parts: Readonly<Record<string, string>>): string =>
  Object.entries(parts).reduce((text, [mark, part]) => text.replaceAll(`<!-- ${mark} -->`, () => part), template);

/** Puts the current version of each file into its URLs in the page, so that browsers can cache them. */
const withVersions = (page: string, files: readonly ReferenceFile[]): string =>
  files.reduce((text, { path, version }) => {
    const name = path.replace(PAGE, '');
    return text.replaceAll(new RegExp(`(<(?:link|script) [^>]*(?:href|src)="${name})"`, 'g'), `$1?${version}"`);
  }, page);

/** Renders the parts that do not depend on plans, by their marks in the page. Request and response are side by side. */
function fixedParts(api: Document): Readonly<Record<string, string>> {
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
    errors: Object.entries(ERRORS)
      .map(
        ([code, { status, message, cure }]) =>
          `<tr id="error-${code}"><td>${status}</td><td><code>${code}</code></td><td>${message}<br />${inline(cure)}</td></tr>`,
      )
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
  const languages = samples.map(
    ({ label }, at) => `<button type="button" data-language="${label}" aria-pressed="${at === 0}">${label}</button>`,
  );
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
${body ? tableOf('Body', fieldRows(api, body.schema)) : ''}
<div class="call">
<div class="request">
<div class="head"><h4>Request</h4><div role="group" aria-label="Language">${languages.join('')}</div><button type="button" class="copy" aria-live="polite">Copy</button></div>
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
  if (Array.isArray(schema.enum))
    return `<select ${attributes}><option value="">any</option>${schema.enum.map((value) => `<option>${value}</option>`).join('')}</select>`;
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
    return [row, ...fieldRows(api, member, `${prefix}${name}${[type.type].flat().includes('array') ? '[]' : ''}.`)];
  });
}

/** Finds the object in a value that is an object, a list of objects, or an object or null. */
function objectIn(api: Document, given: Schema): Schema {
  const schema = resolved(api, given);
  const inner = schema.items ?? (schema.anyOf as Schema[] | undefined)?.[0];
  return inner === undefined ? schema : objectIn(api, inner as Schema);
}

/** Describes a value's type in words. */
function typeOf(schema: Schema): string[] {
  const { type, format, minimum, maximum, minLength, maxLength, default: otherwise } = schema as Record<string, number>;
  // An object that may be null has alternatives in place of a type.
  const types: unknown[] = [type ?? (schema.anyOf && ['object', 'null'])].flat();
  const words = [...types.filter((word) => word !== 'null'), format].filter((word) => word !== undefined);
  const options = Array.isArray(schema.enum) ? schema.enum.filter((value) => value !== null) : [];
  const isBounded = format === undefined && maximum !== undefined;
  return [
    words
      .join(' ')
      .replace('integer int64', '64-bit integer')
      .replace('string date-time', 'time')
      .replace('string date', 'date') + (types.includes('null') ? ' or null' : ''),
    ...(options.length > 0 ? [`one of ${options.join(', ')}`] : []),
    ...(isBounded ? [`${minimum} to ${maximum}`] : []),
    ...(maxLength === undefined ? [] : [`${minLength ?? 0} to ${maxLength} characters`]),
    ...(otherwise === undefined ? [] : [`default ${otherwise}`]),
  ].filter((word) => word !== '');
}

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

/** Explains the waiting times with the limits of the first plan. */
function workedExample({ free: { minute = 1, day = 1 } }: PlanTable): string {
  const [perMinute, perDay] = [60 / minute, 86_400 / day];
  const seconds = (value: number) => (Number.isInteger(value) ? number(value) : value.toFixed(1));
  return `<p>With ${plural(minute, 'request')} per minute, a token is refilled every ${seconds(perMinute)} s: after ${number(minute)} requests at once, the next one gets <code>Retry-After: ${Math.ceil(perMinute)}</code>. With ${number(day)} per day, a token is refilled every ${seconds(perDay)} s: once all are used, it gets <code>Retry-After: ${Math.ceil(perDay)}</code>.</p>`;
}

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** Renders backticks as code. */
const inline = (text: string): string => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');

/** @param value undefined if there is no example */
const pretty = (value: unknown): string => escaped(JSON.stringify(value, null, 2) ?? '');

/** Groups the digits in threes. `toLocaleString` would load the data of all languages into each worker. */
const number = (value: number): string => String(value).replaceAll(/\B(?=(?:\d{3})+$)/g, ',');
const plural = (count: number, one: string): string => `${number(count)} ${one}${count === 1 ? '' : 's'}`;
