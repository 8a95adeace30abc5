/** This file is plain JavaScript, and `main.ts` is a link to it. Without Node's TypeScript compiler, it starts sooner. */
import '../../../shared/process/compiled.js';

await import('./program.ts');
