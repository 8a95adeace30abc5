import { request } from 'undici';
import { z } from 'zod';
import { host, port, readSettings, SettingsError, token } from '../../shared/env.ts';
import { readToken, tokenFile } from './token.ts';

/** Talks to a gateway's admin listener, for the command line and for `npm start`. */

/** A fault that its reader can do something about. */
export class AdminError extends Error {
  /** What the listener answered; undefined when it did not. */
  readonly status: number | undefined;

  constructor(message: string, { status, cause }: { status?: number; cause?: unknown } = {}) {
    super(message, { cause });
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
 * Finds the listener and its token as the gateway on this machine would: ADMIN_HOST, ADMIN_PORT, ADMIN_TOKEN, or the
 * token kept in DATA_DIR.
 * @throws {SettingsError} for bad settings and a file that holds no token, {AdminError} when there is no token to be found
 */
export async function findAdmin(environment: NodeJS.ProcessEnv): Promise<AdminAddress> {
  const { ADMIN_HOST, ADMIN_PORT, DATA_DIR, ADMIN_TOKEN } = readSettings(AdminSettings, environment);
  const url = `http://${ADMIN_HOST.includes(':') ? `[${ADMIN_HOST}]` : ADMIN_HOST}:${ADMIN_PORT}`;
  return { url, token: ADMIN_TOKEN ?? (await tokenIn(tokenFile(DATA_DIR))) };
}

async function tokenIn(path: string): Promise<string> {
  const kept = await readToken(path).catch((fault: Error) => {
    if (fault instanceof SettingsError) throw fault;
  });
  if (kept !== undefined) return kept;
  throw new AdminError(
    `No admin token: ${path} cannot be read, and ADMIN_TOKEN is not set. Has the gateway been started here?`,
  );
}

export interface AdminRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  /** ETag of what the sender has seen. */
  readonly ifMatch?: string | undefined;
}

export interface AdminReply {
  /** Undefined where the answer has none. */
  readonly body: unknown;
  readonly etag: string | undefined;
  /** What was done with a reservation, in words. */
  readonly warning: string | undefined;
}

/** One call of the admin API; the answer's body, or undefined where it has none. @throws {AdminError} as `exchange` does */
export async function callAdmin(
  admin: AdminAddress,
  method: AdminRequest['method'],
  path: string,
  body?: unknown,
): Promise<unknown> {
  return (await exchange(admin, { method, path, body })).body;
}

/**
 * One call of the admin API.
 * @throws {AdminError} saying what the listener said, or that it did not answer
 */
export async function exchange(
  admin: AdminAddress,
  { method, path, body, ifMatch }: AdminRequest,
): Promise<AdminReply> {
  const {
    statusCode,
    headers,
    body: answer,
  } = await request(admin.url + path, {
    method,
    headers: {
      authorization: `Bearer ${admin.token}`,
      'content-type': 'application/json',
      ...(ifMatch === undefined ? {} : { 'if-match': ifMatch }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch((cause: unknown) => {
    throw new AdminError(
      `No gateway answers at ${admin.url}. Is it running? ADMIN_HOST and ADMIN_PORT say where it is.`,
      { cause },
    );
  });
  const value = parse(await answer.text(), admin.url);
  if (statusCode >= 400) throw new AdminError((value as { message: string }).message, { status: statusCode });
  return {
    body: value,
    etag: headers.etag as string | undefined,
    warning: textOf(headers.warning as string | undefined),
  };
}

/** The text of a Warning header (RFC 7234 §5.5). */
const textOf = (warning: string | undefined): string | undefined => warning && /"(.*)"/.exec(warning)?.[1];

function parse(text: string, url: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch (cause) {
    throw new AdminError(`What answers at ${url} is no gateway's admin listener.`, { cause });
  }
}
