import { request } from 'undici';
import { z } from 'zod';
import { host, port, readSettings, SettingsError, token } from '../../../shared/process/env.ts';
import { CTL } from '../clients.ts';
import { readToken, tokenFile } from '../tokens.ts';

/** The client of a gateway's admin listener, for the command line and for `npm start`. */

/** An error that the operator can act on. */
export class AdminError extends Error {
  /** The code of the listener's error, or one of ours: `no_token`, `no_gateway`, `usage`, `not_confirmed`. */
  readonly code: string;
  /** The status of the response; undefined if there was no response. */
  readonly status: number | undefined;

  constructor(code: string, message: string, { status, cause }: { status?: number; cause?: unknown } = {}) {
    super(message, { cause });
    this.code = code;
    this.status = status;
  }
}

export interface AdminAddress {
  readonly url: string;
  readonly token: string;
}

const AdminSettings = z.object({
  ADMIN_HOST: host.default('127.0.0.1'),
  ADMIN_PORT: port().default(9090),
  ADMIN_TOKEN: token.optional(),
  DATA_DIR: z.string().default('.data'),
});

/**
 * Finds the listener and its token from the settings of the gateway on this machine: ADMIN_HOST, ADMIN_PORT and
 * ADMIN_TOKEN, or the token in DATA_DIR.
 * @throws {SettingsError} for invalid settings or a file without a token, {AdminError} if there is no token
 */
export async function findAdmin(environment: NodeJS.ProcessEnv): Promise<AdminAddress> {
  const { ADMIN_HOST, ADMIN_PORT, DATA_DIR, ADMIN_TOKEN } = readSettings(AdminSettings, environment);
  const url = `http://${ADMIN_HOST.includes(':') ? `[${ADMIN_HOST}]` : ADMIN_HOST}:${ADMIN_PORT}`;
  if (ADMIN_TOKEN !== undefined) return { url, token: ADMIN_TOKEN };
  const path = tokenFile(DATA_DIR);
  const kept = await readToken(path).catch((fault: Error) => {
    if (fault instanceof SettingsError) throw fault;
  });
  if (kept !== undefined) return { url, token: kept };
  const message = `No admin token: ${path} cannot be read, and ADMIN_TOKEN is not set. Has the gateway been started here?`;
  throw new AdminError('no_token', message);
}

export interface AdminRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  /** The ETag of the version that the sender has seen. */
  readonly ifMatch?: string | undefined;
  /** Whether the call changes nothing, although it is not a GET. */
  readonly isTrial?: true;
  /** How long to wait for the response, in milliseconds. */
  readonly withinMs?: number;
}

const ANSWER_WITHIN_MS = 30_000;

/**
 * Makes one call to the admin API.
 * @returns the body, undefined if there is none, its ETag, and the text of a warning about a change that was made
 * @throws {AdminError} with the listener's message, or if there was no response
 */
export async function exchange(
  admin: AdminAddress,
  { method, path, body, ifMatch, withinMs = ANSWER_WITHIN_MS }: AdminRequest,
) {
  const response = await request(admin.url + path, {
    method,
    headers: {
      authorization: `Bearer ${admin.token}`,
      'user-agent': CTL,
      'content-type': 'application/json',
      ...(ifMatch !== undefined && { 'if-match': ifMatch }),
    },
    headersTimeout: withinMs,
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }).catch((cause: unknown) => {
    const isTimeout = (cause as { code?: string }).code === 'UND_ERR_HEADERS_TIMEOUT';
    const message = isTimeout
      ? `The gateway at ${admin.url} did not respond within ${withinMs / 1_000} s: it or its machine is hung.`
      : `No gateway answers at ${admin.url}. Is it running? ADMIN_HOST and ADMIN_PORT set its address.`;
    throw new AdminError('no_gateway', message, { cause });
  });
  const { statusCode: status } = response;
  const isRefused = status >= 400;
  const value = parse(await response.body.text(), isRefused ? Refusal : z.unknown(), admin.url);
  if (isRefused) {
    const { code, message } = value as z.infer<typeof Refusal>;
    throw new AdminError(code, message, { status });
  }
  const { etag, warning } = response.headers as Readonly<Record<string, string | undefined>>;
  // The text of a Warning header (RFC 7234 §5.5).
  return { body: value, etag, warning: warning && /"(.*)"/.exec(warning)?.[1] };
}

const Refusal = z.object({ code: z.string(), message: z.string() });

/** @throws {AdminError} if the response is not from a gateway */
function parse(text: string, schema: z.ZodType, url: string): unknown {
  try {
    return schema.parse(text === '' ? undefined : JSON.parse(text));
  } catch (cause) {
    throw new AdminError('no_gateway', `The server at ${url} is not a gateway's admin listener.`, { cause });
  }
}
