import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { etagOf, safetyHeaders } from '../../shared/static-file.ts';
import type { GatewayRoute } from '../routes.ts';

/** What the API reference consists of: these files under these paths and nothing else, read once and kept in memory. */
export type Reference = ReadonlyMap<string, ReferenceFile>;

const OUR_PAGE = join(import.meta.dirname, 'page');
const SWAGGER_UI = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));

/** Asked for anew each time, and answered with 304 while it is the same. */
const OURS = 'no-cache';
/** Changes with a release of the package only. */
const THEIRS = 'public, max-age=86400';

const FILES = [
  { path: '/v1/openapi.json', type: 'application/json', from: join(import.meta.dirname, 'openapi.json'), keep: OURS },
  { path: '/docs/', type: 'text/html; charset=utf-8', from: join(OUR_PAGE, 'index.html'), keep: OURS },
  { path: '/docs/page.css', type: 'text/css; charset=utf-8', from: join(OUR_PAGE, 'page.css'), keep: OURS },
  { path: '/docs/page.js', type: 'text/javascript; charset=utf-8', from: join(OUR_PAGE, 'page.js'), keep: OURS },
  ...[
    { name: 'swagger-ui.css', type: 'text/css; charset=utf-8' },
    { name: 'swagger-ui-bundle.js', type: 'text/javascript; charset=utf-8' },
    { name: 'favicon-32x32.png', type: 'image/png' },
  ].map(({ name, type }) => ({ path: `/docs/${name}`, type, from: join(SWAGGER_UI, name), keep: THEIRS })),
];

/** Swagger UI puts its icons into its style sheet as data: URLs. */
const SAFETY = safetyHeaders("img-src 'self' data:");

const gzipped = promisify(gzip);

/** One file, as an operation of the gateway's own. */
export class ReferenceFile implements GatewayRoute {
  readonly operation = 'reference';
  readonly method = 'GET';
  readonly takesBody = false;
  readonly path: string;
  readonly status: number;
  readonly body: Buffer;
  readonly etag: string;
  /** On every answer with this file, 304 included. */
  readonly headers: readonly string[];
  #compressed: Promise<Buffer> | undefined;

  constructor(path: string, status: number, body: Buffer, headers: readonly string[]) {
    this.path = path;
    this.status = status;
    this.body = body;
    this.etag = etagOf(body);
    this.headers = ['ETag', this.etag, 'Vary', 'Accept-Encoding', ...SAFETY, ...headers];
  }

  /** Compressed when it is first asked for. */
  compressed(): Promise<Buffer> {
    this.#compressed ??= gzipped(this.body);
    return this.#compressed;
  }
}

/** @throws the system's error when a file is missing */
export function loadReference(): Reference {
  const files = FILES.map(({ path, type, from, keep }) => {
    return new ReferenceFile(path, 200, readFileSync(from), ['Content-Type', type, 'Cache-Control', keep]);
  });
  const slash = new ReferenceFile('/docs', 308, Buffer.alloc(0), ['Location', '/docs/', 'Cache-Control', THEIRS]);
  return new Map([...files, slash].map((file) => [file.path, file]));
}
