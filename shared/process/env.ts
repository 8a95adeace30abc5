import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { z } from 'zod';
import { argumentFaults, misspelt } from './arguments.ts';

/** All faults in the environment, one per line. */
export class SettingsError extends Error {}

/** Without a token, the core accepts any request. An empty value may be an accident, so it is a fault. */
const NEVER_EMPTY = 'CORE_TOKEN';

/**
 * Reads a service's settings from the environment. An empty variable, except CORE_TOKEN, counts as unset. Messages do not repeat values:
 * some are secret.
 * @param args the program's arguments. Each of them is a fault. Null in a worker, whose primary has checked them and the
 *   names of all variables, but keeps some settings to itself, so that another variable could look like one of those
 * @throws {SettingsError} naming every missing, bad or misspelt setting, and every argument
 */
export function readSettings<S extends z.ZodObject>(
  schema: S,
  environment: NodeJS.ProcessEnv,
  args: readonly string[] | null = [],
): Settings<S> {
  const set = Object.fromEntries(
    Object.entries(environment).filter(([name, value]) => value !== '' || name === NEVER_EMPTY),
  );
  const secrets = Object.keys(schema.shape).filter((name) => isSecret(schema.shape[name]));
  const { given, files, faults } = withSecretFiles(set, secrets);
  const result = schema.safeParse(given);
  const names = [...Object.keys(schema.shape), ...secrets.map(fileSetting)];
  const unknown = args === null ? [] : misspelt(Object.keys(given), names);
  const issues = (result.error?.issues ?? []).filter(({ path }) => !faults.some(([name]) => name === path[0]));
  const lines = [
    ...faults.map(([name, message]) => `  ${fileSetting(name)}: ${message}`),
    ...issues.map((issue) => `  ${issue.path.join('.')}: ${issue.message}`),
    ...unknown.map(([name, meant]) => `  ${name}: is not a setting; did you mean ${meant}? Rename or unset it`),
    ...argumentFaults(args ?? [], names, secrets).map(([argument, message]) => `  ${argument}: ${message}`),
  ];
  if (result.success && lines.length === 0) return { ...result.data, secretFiles: files };
  throw new SettingsError(`The settings are invalid:\n${lines.join('\n')}`);
}

/** The values of all settings, and for secret settings the files from which they were read. */
export type Settings<S extends z.ZodObject> = z.infer<S> & { readonly secretFiles: Readonly<Record<string, string>> };

/** The setting that names a file with the value of a secret setting. */
export const fileSetting = (name: string): string => `${name}_FILE`;

/** Whether the value of a setting is secret. Such a setting can also be read from a file. */
export function isSecret(schema: z.core.$ZodType | undefined): boolean {
  if (schema === undefined) return false;
  const { innerType } = schema._zod.def as { innerType?: z.core.$ZodType };
  return z.globalRegistry.get(schema)?.secret === true || isSecret(innerType);
}

/** The settings, with the values of secrets that are given as files, and the paths of those files. */
function withSecretFiles(set: NodeJS.ProcessEnv, secrets: readonly string[]) {
  const given = { ...set };
  const files: Record<string, string> = {};
  const faults: [name: string, message: string][] = [];
  for (const name of secrets) {
    const path = set[fileSetting(name)];
    if (path === undefined) continue;
    if (set[name] !== undefined) faults.push([name, `must not be set together with ${name}`]);
    else {
      files[name] = path;
      const { value, fault } = secretIn(path);
      given[name] = value;
      if (fault !== undefined) faults.push([name, fault]);
    }
  }
  return { given, files, faults };
}

/** The value of a secret setting in this file, and why a service does not start with it. */
export function secretIn(path: string): { readonly value?: string; readonly fault?: string } {
  try {
    const value = readSecretFile(path);
    return value === '' ? { value, fault: 'must be a non-empty file' } : { value };
  } catch (thrown) {
    return { fault: `must be a file that can be read (${(thrown as NodeJS.ErrnoException).code})` };
  }
}

/** The content of a file without a line feed at its end. */
export const readSecretFile = (path: string): string => readSettingFile(path).replace(/\r?\n$/, '');

/** A whole number in decimal digits. */
export function integer(minimum: number, maximum: number) {
  const error = `must be a whole number from ${minimum} to ${maximum}`;
  return z
    .string()
    .regex(/^\d{1,15}$/, error)
    .transform(Number)
    .refine((value) => value >= minimum && value <= maximum, error);
}

export const port = () => integer(0, 65_535);

export const host = z.string().regex(/^[\w.:-]+$/, 'must be a host name or an IP address');

/** An address, or an address block in CIDR notation (RFC 4632 §3.1, RFC 4291 §2.3). */
export const addressBlock = z.string().refine(isAddressBlock, 'must be an IP address or a block like 10.0.0.0/8');

function isAddressBlock(text: string): boolean {
  const [address = '', prefix] = text.split('/');
  const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  // A shorter prefix of an IPv4-mapped address would contain all IPv4 addresses.
  const least = /^::ffff:/i.test(address) ? 96 : 0;
  const length = prefix === undefined ? bits : /^\d{1,3}$/.test(prefix) ? Number(prefix) : -1;
  const isPrefix = length >= least && length <= bits;
  return bits > 0 && isPrefix && text.split('/').length <= 2;
}

const TOKEN = '[\\w.~+/=-]{16,}';
const SEVERAL = 'separate several with commas, without empty ones';
const TOKEN_FAULT = 'must be a token of at least 16 characters, without spaces';

/** A bearer token of an operator. */
export const token = z
  .string()
  .regex(new RegExp(`^${TOKEN}$`), TOKEN_FAULT)
  .meta({ secret: true });

/** Bearer tokens between services, separated by commas. An empty one is a fault. */
export const tokens = z
  .string()
  .regex(new RegExp(`^${TOKEN}(?:,${TOKEN})*$`), {
    error: ({ input }) =>
      input === '' ? 'must not be empty: unset it if there is no token' : `${TOKEN_FAULT}; ${SEVERAL}`,
  })
  .transform((text) => text.split(','))
  .meta({ secret: true });

export const logLevel = z
  .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], {
    error: 'must be one of fatal, error, warn, info, debug, trace, silent',
  })
  .default('info')
  .describe('lowest level to log: fatal, error, warn, info, debug, trace or silent');

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost']);

export const isLoopback = (name: string): boolean => LOOPBACK.has(name);

const read = new Map<string, string>();
let instead: ReadonlyMap<string, string> = new Map();

/** The content of a file that a setting names. */
export function readSettingFile(path: string): string {
  const text = instead.get(path) ?? readFileSync(path, 'utf8');
  read.set(path, text);
  return text;
}

/** The text last read from each file that a setting names. */
export const textsRead = (): ReadonlyMap<string, string> => new Map(read);

/** Uses these contents in place of the files from now on; undefined restores the files. */
export function readInstead(texts: ReadonlyMap<string, string> | undefined): void {
  instead = texts ?? new Map();
}
