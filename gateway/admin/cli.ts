import { keepCompiled } from '../../shared/compile-cache.ts';

keepCompiled();
await import('./cli-program.ts');
