/** This file is plain JavaScript, and `main.ts` is a link to it, for the reason given in gateway/main.js. */
import '../shared/process/compiled.js';

const { asksForHelp } = await import('../shared/process/arguments.ts');
await (asksForHelp(process.argv) ? import('./help.ts') : import('./program.ts'));
