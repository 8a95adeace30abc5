import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describeApi } from './openapi.ts';

const LINE_WIDTH = 120;

/** `npm run generate`: writes the description that the gateway serves. */
await writeFile(join(import.meta.dirname, 'openapi.json'), `${compact(describeApi())}\n`);

/** Writes JSON in which everything that fits on one line is on one line. */
function compact(value: object, indent = 0): string {
  const text = JSON.stringify(value);
  if (typeof value !== 'object' || text.length + indent <= LINE_WIDTH) return text;
  const isList = Array.isArray(value);
  const members = Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .map(([name, inner]) => `${isList ? '' : `${JSON.stringify(name)}: `}${compact(inner, indent + 2)}`);
  const pad = '\n'.padEnd(indent + 1);
  const [open, close] = isList ? '[]' : '{}';
  return `${open}${pad}  ${members.join(`,${pad}  `)}${pad}${close}`;
}
