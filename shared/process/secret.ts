import type { z } from 'zod';
import { fileSetting, readSecretFile, type Settings, secretIn } from './env.ts';
import type { Logger } from './logger.ts';

interface RereadOptions {
  readonly logger: Logger;
  /** How long a value from the file is used, in milliseconds. */
  readonly maxAgeMs: number;
}

/**
 * Returns the current value of a secret setting. If the value comes from a file, the file is read again.
 * @param schema the schema with which the settings were read
 */
export function currentSecret<S extends z.ZodObject, N extends keyof z.infer<S> & string>(
  schema: S,
  settings: Settings<S>,
  name: N,
  options: RereadOptions,
): () => Settings<S>[N] {
  const value = settings[name];
  const path = settings.secretFiles[name];
  if (path === undefined) return () => value;
  const parse = (found: string): Settings<S>[N] => {
    const result = (schema.shape[name] as z.ZodType).safeParse(found === '' ? undefined : found);
    if (!result.success || result.data === undefined) throw new Error('This is not a valid value.');
    return result.data as Settings<S>[N];
  };
  return rereadFile(name, path, value, parse, options);
}

/**
 * Returns the current value of a setting that is in a file. The file is read again, so that it can be changed while the
 * service runs. If it cannot be read or contains no valid value, this is logged once, and the last good value stays.
 * The file is small and local, so it is read synchronously.
 * @param first the first value
 * @param parse reads the value from the file's text, and throws if there is no valid one
 */
export function rereadFile<T>(
  setting: string,
  path: string,
  first: T,
  parse: (text: string) => T,
  { logger, maxAgeMs }: RereadOptions,
): () => T {
  let value = first;
  let text = '';
  let fault = '';
  let readAt = performance.now();

  function read(): void {
    readAt = performance.now();
    try {
      const found = readSecretFile(path);
      if (found === text && fault === '') return;
      value = parse(found);
      if (text !== '' && text !== found) logger.info({ setting }, 'the setting was changed');
      [text, fault] = [found, ''];
    } catch (thrown) {
      reject((thrown as NodeJS.ErrnoException).code ?? 'it has no valid value');
    }
  }

  /** The log line must not contain the value. */
  function reject(reason: string): void {
    if (fault !== reason)
      logger.error({ setting, reason }, 'the file of a setting is invalid; the last good value stays');
    fault = reason;
  }

  read();
  return () => {
    if (performance.now() - readAt >= maxAgeMs) read();
    return value;
  };
}

/** A file with the value of a secret setting. */
export interface SecretFile {
  readonly setting: string;
  readonly path: string;
  /** Why a service does not start with it; undefined if it does. */
  readonly fault: string | undefined;
}

/**
 * Checks all files of secret settings as a start would.
 * @param schema the schema with which the settings were read
 */
export const checkedSecretFiles = <S extends z.ZodObject>(schema: S, { secretFiles }: Settings<S>): SecretFile[] =>
  Object.entries(secretFiles).map(([name, path]) => {
    const { value, fault } = secretIn(path);
    const { error } = (schema.shape[name] as z.ZodType).safeParse(value);
    return { setting: fileSetting(name), path, fault: fault ?? error?.issues[0]?.message };
  });
