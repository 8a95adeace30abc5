import { ERRORS } from '../../shared/http/errors.ts';
import type { Document, Operation, Parameter, Ref, Response, Schema } from './document.ts';

/** Renders the operations of the page: the parameters of each one, with its request and its response side by side. */

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** Renders backticks as code, and blank lines as paragraphs. */
export const inline = (text: string): string => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
const paragraphs = (text: string): string =>
  text
    .split('\n\n')
    .map((one) => `<p>${inline(one)}</p>`)
    .join('\n');

const pretty = (value: unknown): string => escaped(JSON.stringify(value, null, 2));

/** Renders the parts of the page that show operations, by their marks in it. */
export function operationParts(api: Document): { readonly operations: string; readonly contents: string } {
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
    operations: all.map((one) => operationPart(api, one, isCommon)).join('\n'),
    contents: all
      .map(({ operation: { operationId, summary } }) => `<li><a href="#${operationId}">${summary}</a></li>`)
      .join('\n'),
  };
}

interface Called {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
}

function operationPart(
  api: Document,
  { method, path, operation }: Called,
  isCommon: (status: string) => boolean,
): string {
  const { operationId: id, summary, description, deprecated, parameters, requestBody, responses } = operation;
  const canBeTried = operation['x-try-it-out'] !== false;
  const body = requestBody?.content['application/json'];
  const [status = '', success] = Object.entries(responses)[0] ?? [];
  const { description: meaning, content } = resolved(api, success as Response | Ref);
  const errors = Object.keys(responses).filter((one) => Number(one) >= 400 && !isCommon(one));
  const answer = content?.['application/json'];
  return `<section class="operation" id="${id}" data-method="${method}" data-path="${path}" aria-labelledby="${id}-name">
<h3 id="${id}-name"><span class="method ${method.toLowerCase()}">${method}</span> <code>${escaped(path)}</code> <span>${summary}</span>${deprecated ? ' <span class="deprecated">deprecated</span>' : ''}</h3>
${paragraphs(description)}
<form>
${tableOf(
  'Parameters',
  parameters.map((one) => parameterRow(id, resolved(api, one), canBeTried)),
)}
${body ? `${tableOf('Body', fieldRows(api, body.schema))}` : ''}
<div class="call">
<div class="request">
<div class="head"><h4>Request</h4>${languages(operation)}<button type="button" class="copy" aria-live="polite">Copy</button></div>
${samplesOf(operation)
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
<pre tabindex="0"><code>${pretty(answer?.example)}</code></pre>
<details class="headers" hidden><summary>Headers</summary><pre tabindex="0"></pre></details>
</div>
</div>
</form>
${answer ? `<details><summary>Fields of the response</summary>${tableOf('Fields of the response', fieldRows(api, answer.schema))}</details>` : ''}
<p class="outcomes"><b>${status}</b> ${inline(meaning)} ${errors.map(errorLinks).join('')} <a href="#errors">Errors of every operation</a></p>
</section>`;
}

const samplesOf = (operation: Operation) => operation['x-codeSamples'] ?? [];

const languages = (operation: Operation): string =>
  `<div role="group" aria-label="Language">${samplesOf(operation)
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
  return `<input ${attributes} autocomplete="off" spellcheck="false"${required ? ` required value="${example}"` : ''} />`;
}

/** Renders the members of an object, or of the objects in a list, and their own members in turn. */
function fieldRows(api: Document, given: Schema, prefix = ''): string[] {
  const schema = objectIn(api, given);
  const required = new Set(schema.required as string[] | undefined);
  return Object.entries((schema.properties ?? {}) as Record<string, Schema>).flatMap(([name, member]) => {
    const { description = '', ...type } = resolved(api, member);
    const about = [...typeOf(type), ...(required.has(name) ? [] : ['optional'])].join(', ');
    const row = `<tr><th scope="row"><code>${prefix}${name}</code></th><td>${inline(String(description))} <span class="quiet">${about}</span></td></tr>`;
    const isList = resolved(api, member).type === 'array';
    return [row, ...fieldRows(api, member, `${prefix}${name}${isList ? '[]' : ''}.`)];
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
  const words = [...[type, format].flat(), ...(schema.anyOf ? ['object or null'] : [])].filter(
    (word) => word !== undefined,
  );
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

/** Resolves a reference, and adds what is nested in a parameter. */
function resolved<T extends object>(api: Document, value: T | Ref): T & { schema: Schema } & Schema {
  const path = '$ref' in value ? (value as Ref).$ref.split('/').slice(1) : undefined;
  const found = (path?.reduce((part, name) => (part as Record<string, object>)[name] as object, api as object) ??
    value) as T & { schema: Schema } & Schema;
  return found.schema === undefined ? found : { ...found, schema: resolved(api, found.schema) };
}
