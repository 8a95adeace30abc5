import { readFileSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { CoreSettings } from '../core/config.ts';
import { GatewaySettings } from '../gateway/config.ts';

/** The README's tables of settings, written from the schemas that check them. */

const README = new URL('../README.md', import.meta.url);

/** A text with the tables of settings in it as they are now, between the marks where they stand. */
export const withSettingsTables = (text: string): string =>
  Object.entries({ gateway: GatewaySettings, core: CoreSettings }).reduce(
    (written, [service, schema]) => written.replace(placeOf(service), `$1${tableOf(service, schema)}$2`),
    text,
  );

const placeOf = (service: string): RegExp => new RegExp(`(<!-- settings of the ${service} -->\\n)[^]*?(<!-- end -->)`);

function tableOf(service: string, { shape }: z.ZodObject): string {
  const rows = Object.entries(shape).map(
    ([name, schema]) => `| \`${name}\` | ${defaultOf(schema)} | ${z.globalRegistry.get(schema)?.description} |`,
  );
  return [`| ${service} | default |  |`, '| --- | --- | --- |', ...rows, ''].join('\n');
}

function defaultOf(schema: z.core.$ZodType): string {
  const value = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;
  return String(value ?? '') || '–';
}

if (import.meta.main) writeFileSync(README, withSettingsTables(readFileSync(README, 'utf8')));
