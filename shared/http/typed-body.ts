import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import { JsonError, parseJson } from '../schemas/json.ts';
import { readJsonBytes } from './body.ts';
import { HttpError } from './errors.ts';

/**
 * The body, checked against `schema`.
 * @throws {HttpError} 413 above `maxBytes`, 415 for another media type, 400 for anything the schema refuses
 */
export async function readBody<S extends z.ZodType>(
  schema: S,
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
): Promise<z.infer<S>> {
  const bytes = await readJsonBytes(request, response, maxBytes);
  if (bytes.length === 0) throw new HttpError('invalid_request', 'A JSON body is required.');
  const result = schema.safeParse(parse(bytes));
  if (!result.success) throw new HttpError('invalid_request', describe(result.error));
  return result.data;
}

function parse(bytes: Buffer): unknown {
  try {
    return parseJson(bytes);
  } catch (fault) {
    if (fault instanceof JsonError) throw new HttpError('invalid_request', fault.message, { cause: fault });
    throw fault;
  }
}

function describe(error: z.ZodError): string {
  const faults = error.issues.map((issue) => {
    if (issue.code === 'unrecognized_keys') return `${issue.keys.map(quoted).join(', ')} is not known`;
    if (issue.code === 'invalid_type' && issue.path.length === 0) return 'a JSON object is expected';
    return `${issue.path.join('.')} ${issue.message}`.trimStart();
  });
  return `The body is not valid: ${faults.join('; ')}.`;
}

const quoted = (key: string): string => JSON.stringify(key);
