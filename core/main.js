/** This file is plain JavaScript, and `main.ts` is a link to it, for the reason given in gateway/main.js. */
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

enableCompileCache(join(import.meta.dirname, '../node_modules/.cache/compiled'));
const { asksForHelp } = await import('../shared/process/arguments.ts');
await (asksForHelp(process.argv) ? import('./help.ts') : import('./program.ts'));
