import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { parse } from 'yaml';
import { ROOT } from './root.ts';

/** deploy/compose.yaml as an engine would read it. */

export interface ComposeService {
  readonly image: string;
  readonly build?: { readonly context: string; readonly dockerfile: string; readonly target: string };
  readonly environment?: Readonly<Record<string, string>>;
  readonly networks: readonly string[] | Readonly<Record<string, { readonly ipv4_address?: string } | null>>;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly stop_grace_period: string;
  readonly [key: string]: unknown;
}

export interface Compose {
  readonly name: string;
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly networks: Readonly<Record<string, { readonly internal?: boolean } | null>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

export const composeText = (): string => readFileSync(join(ROOT, 'deploy/compose.yaml'), 'utf8');

/** The variables of the example file, each with a fresh secret. */
export const freshSecrets = (): Record<string, string> =>
  parseEnv(execFileSync('sh', [join(ROOT, 'deploy/fill-env.sh')], { encoding: 'utf8' })) as Record<string, string>;

/**
 * The file with its variables replaced (https://docs.docker.com/reference/compose-file/interpolation/).
 * @throws {Error} if a required variable is missing
 */
export function readCompose(variables: Readonly<Record<string, string>>): Compose {
  const text = composeText().replaceAll(/\$\{(\w+)(?::([?-])([^}]*))?\}/g, (_, name: string, mark, rest) => {
    const value = variables[name] ?? '';
    if (value === '' && mark === '?') throw new Error(`${name} ${rest}`);
    return value === '' && mark === '-' ? rest : value;
  });
  return parse(text, { merge: true }) as Compose;
}
