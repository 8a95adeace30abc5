import { keepCompiled } from '../shared/compile-cache.ts';

keepCompiled();
await import('./program.ts');
