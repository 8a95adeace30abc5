import { keepCompiled } from '../shared/process/compile-cache.ts';

keepCompiled();
await import('./program.ts');
