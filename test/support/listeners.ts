import { readFileSync } from 'node:fs';
import { createAuthority } from './certificates.ts';
import type { LogLine } from './log.ts';
import { ADMIN_TOKEN, startStack, UNLIMITED } from './stack.ts';

/** A listener, a valid request to it, and its log. */
export interface Listener {
  readonly name: string;
  readonly url: string;
  /** The key for requests, or undefined if none is needed. */
  readonly key: string | undefined;
  /** The path for reads and writes, and a valid body for writes. */
  readonly read: string;
  readonly write: string;
  readonly body: string;
  readonly log: readonly LogLine[];
  /** The log of the server to which the listener forwards requests, if any. */
  readonly coreLog?: readonly LogLine[];
}

/**
 * Starts listeners for clients, without and with TLS, for operators and for internal services.
 * @param name the name of the records that writes create
 */
export async function startListeners(name: string, settings: Record<string, string> = {}) {
  const { caFile, certFile, keyFile } = await createAuthority();
  const stack = await startStack(settings);
  const secure = await startStack({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
  const limits = { ...UNLIMITED, day: 10_000_000 };
  const pets = { read: '/v1/pets?limit=1', write: '/v1/pets', body: JSON.stringify({ name, categoryId: 1 }) };
  const keys = { read: '/plans', write: '/keys', body: JSON.stringify({ name, plan: 'free' }) };
  const forClients = async ({ gateway: url, issueKey, log, coreLog }: typeof stack) => ({
    ...{ url, key: await issueKey(limits), log, coreLog },
    ...pets,
  });
  const listeners: readonly Listener[] = [
    { name: 'clients', ...(await forClients(stack)) },
    { name: 'clients over TLS', ...(await forClients(secure)) },
    { name: 'operators', url: stack.adminUrl, key: ADMIN_TOKEN, ...keys, log: stack.log },
    { name: 'internal services', url: stack.core, key: undefined, ...pets, log: stack.coreLog },
  ];
  return { stack, secure, ca: readFileSync(caFile), listeners };
}
