import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import { description } from '../support/description.ts';

/** Imports the API's description into Postman as a collection, and runs it with newman. Neither package has types. */

const require = createRequire(import.meta.url);
const { convertV2 } = require('openapi-to-postmanv2') as { convertV2: Convert };
const newman = require('newman') as { run: RunCollection };

type Convert = (
  input: { type: 'string'; data: string },
  options: object,
  done: (fault: Error | null, result: { reason?: string; output?: { data: Collection }[] }) => void,
) => void;

type RunCollection = (
  options: { collection: Collection; envVar: { key: string; value: string }[]; timeoutRequest: number },
  done: (fault: Error | null, summary: { run: { executions: Execution[] } }) => void,
) => void;

interface Execution {
  readonly item: { readonly name: string };
  readonly response?: { readonly code: number; text(): string };
}

export interface PostmanRequest {
  name: string;
  request: { method: string; header: { key: string }[]; body?: { raw?: string } };
  event?: object[];
}

interface Folder {
  name: string;
  item: (PostmanRequest | Folder)[];
}

export interface Collection {
  item: (PostmanRequest | Folder)[];
  /** Scripts that run with every request. */
  event?: object[];
}

/** The collection, with examples as values. */
export async function importIntoPostman(): Promise<Collection> {
  const input = { type: 'string', data: description } as const;
  const { reason, output } = await promisify(convertV2)(input, { parametersResolution: 'Example' });
  const collection = output?.[0]?.data;
  if (collection === undefined) throw new Error(reason);
  return collection;
}

/** All requests of a collection, in order. */
export const requestsOf = (items: readonly (PostmanRequest | Folder)[]): PostmanRequest[] =>
  items.flatMap((item) => ('request' in item ? [item] : requestsOf(item.item)));

/** Waits for the time in Retry-After and repeats the request. */
const WAIT = `
if (pm.response.code === 429) {
  setTimeout(() => {}, 1000 * Number(pm.response.headers.get('Retry-After')));
  pm.execution.setNextRequest(pm.info.requestId);
}`;

/** Runs requests in order. @param storeUrl the URL of the gateway */
export async function runInNewman(requests: readonly PostmanRequest[], storeUrl: string, key: string) {
  const event = [{ listen: 'test', script: { type: 'text/javascript', exec: WAIT.split('\n') } }];
  const auth = { type: 'bearer', bearer: [{ key: 'token', value: key, type: 'string' }] };
  const variable = [{ key: 'baseUrl', value: `${storeUrl}/v1` }];
  const info = { name: 'Store', schema: 'https://schema.getpostman.com/json/collection/v2.1.0/collection.json' };
  const collection = { info, item: [...requests], event, auth, variable };
  const { run } = await promisify(newman.run)({ collection, envVar: [], timeoutRequest: 30_000 });
  return run.executions.map(({ item, response }) => {
    return { name: item.name, status: response?.code, text: response?.text() };
  });
}
