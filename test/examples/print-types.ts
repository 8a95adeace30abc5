import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * Prints the types that openapi-typescript generates from the API's description. It needs the compiler API of
 * TypeScript 5, which TypeScript 7 no longer has; @ts-morph/common contains it.
 */

const COMPILER = new URL('./typescript-5.ts', import.meta.url).href;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'typescript' ? { url: COMPILER, shortCircuit: true } : next(specifier, context),
});
const { default: openapiTypes, astToString } = await import('openapi-typescript');

const description = join(import.meta.dirname, '../../gateway/reference/openapi.json');
// What the description says stands there, and in the reference.
const types = await openapiTypes(pathToFileURL(description));
process.stdout.write(astToString(types, { formatOptions: { removeComments: true } }));
