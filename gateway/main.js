/**
 * Plain JavaScript, and `main.ts` is a link to it: once the code is in the cache, no process of the gateway loads Node's
 * compiler of TypeScript, which would take 18 MB of each as long as it runs.
 */
import { enableCompileCache, flushCompileCache } from 'node:module';
import { join } from 'node:path';

// Its default action ends the process, and what a reload would read again is not read yet.
process.on('SIGHUP', () => {});
enableCompileCache(join(import.meta.dirname, '../node_modules/.cache/compiled'));
const { asksForHelp } = await import('../shared/process/arguments.ts');
if (asksForHelp(process.argv)) await import('./help.ts');
else await (await import('./program.ts')).runGateway();
// Once it runs: a process that is killed later would not keep what it compiled.
flushCompileCache();
