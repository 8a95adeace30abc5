/** This file is plain JavaScript, and `main.ts` is a link to it. Without Node's TypeScript compiler, it starts sooner. */
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

enableCompileCache(join(import.meta.dirname, '../../../node_modules/.cache/compiled'));
await import('./program.ts');
