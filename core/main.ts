import { asksForHelp } from '../shared/process/arguments.ts';
import { keepCompiled } from '../shared/process/compile-cache.ts';

keepCompiled();
await (asksForHelp(process.argv) ? import('./help.ts') : import('./program.ts'));
