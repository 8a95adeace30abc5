/**
 * Strips the types from all TypeScript files in the given folders, in place. Lines and columns stay as they are.
 *
 *     node deploy/stripped/strip.mjs shared gateway
 *
 * With load.mjs, a process that runs the result loads no TypeScript compiler and uses some 25 MB less memory.
 */
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';

for (const folder of process.argv.slice(2))
  for (const file of globSync(`${folder}/**/*.ts`))
    writeFileSync(file, stripTypeScriptTypes(readFileSync(file, 'utf8')));
