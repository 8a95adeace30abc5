/**
 * This file is plain JavaScript, and `main.ts` is a link to it. Once the code is in the compile cache, no process of
 * the gateway loads Node's TypeScript compiler, which would take 18 MB in each.
 */
import module from 'node:module';
import '../shared/process/compiled.js';

// Ignores SIGHUP, which would terminate the process by default. Only a primary that has started reacts to it.
process.on('SIGHUP', () => {});
const { asksForHelp } = await import('../shared/process/arguments.ts');
if (asksForHelp(process.argv)) await import('./help.ts');
else await (await import('./program.ts')).runGateway();
// Saves the compiled code now: a process that is killed later would not save it.
module.flushCompileCache();
