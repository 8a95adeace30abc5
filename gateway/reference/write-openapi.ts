import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describeApi } from './openapi.ts';

/** `npm run generate`: writes the description that the gateway serves. */
await writeFile(join(import.meta.dirname, 'openapi.json'), `${JSON.stringify(describeApi(), undefined, 2)}\n`);
