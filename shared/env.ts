import { isIP } from 'node:net';
import { z } from 'zod';
import { misspelt } from './misspelt.ts';

/** Every fault in the environment at once, a line each. */
export class SettingsError extends Error {}

/** Without it a core is open, and that must be meant: empty, it is a fault. */
const NEVER_EMPTY = 'CORE_TOKEN';

/**
 * A deployable's settings, read from the environment. An empty variable counts as unset. Values are not repeated in the
 * message: some are secret.
 * @throws {SettingsError} naming every setting that is missing, bad or misspelt
 */
export function readSettings<S extends z.ZodObject>(schema: S, environment: NodeJS.ProcessEnv): z.infer<S> {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([name, value]) => value !== '' || name === NEVER_EMPTY),
  );
  const result = schema.safeParse(given);
  const unknown = misspelt(Object.keys(given), Object.keys(schema.shape));
  if (result.success && unknown.length === 0) return result.data;
  const issues = result.error?.issues ?? [];
  const lines = [
    ...issues.map((issue) => `  ${issue.path.join('.')}: ${issue.message}`),
    ...unknown.map(([name, meant]) => `  ${name}: is no setting; did you mean ${meant}? Set that, or unset this`),
  ];
  throw new SettingsError(`The settings have ${lines.length === 1 ? 'a fault' : 'faults'}:\n${lines.join('\n')}`);
}

/** A whole number written in plain digits. */
export function integer(minimum: number, maximum: number) {
  const error = `must be a whole number from ${minimum} to ${maximum}`;
  return z
    .string()
    .regex(/^\d{1,15}$/, error)
    .transform(Number)
    .refine((value) => value >= minimum && value <= maximum, error);
}

export const port = () => integer(0, 65_535);

export const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' });

export const host = z.string().regex(/^[\w.:-]+$/, 'must be a host name or an IP address');

/** One address, or a block of them in CIDR notation (RFC 4632 §3.1, RFC 4291 §2.3). */
export const addressBlock = z.string().refine(isAddressBlock, 'must be an IP address or a block like 10.0.0.0/8');

function isAddressBlock(text: string): boolean {
  const [address = '', prefix] = text.split('/');
  const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  const isPrefix = prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bits);
  return bits > 0 && isPrefix && text.split('/').length <= 2;
}

/** A bearer token that one of our services asks of another. */
export const token = z.string().regex(/^[\w.~+/=-]{16,}$/, 'must be a token of at least 16 characters, without spaces');

export const logLevel = z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], {
  error: 'must be one of fatal, error, warn, info, debug, trace, silent',
});

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost']);

export const isLoopback = (name: string): boolean => LOOPBACK.has(name);
