import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { etagOf, safetyHeaders } from '../../shared/static-file.ts';
import type { GatewayRoute } from '../routes.ts';

/** What the API reference consists of: these files under these paths and nothing else, read once and kept in memory. */
export type Reference = ReadonlyMap<string, ReferenceFile>;

const DESCRIPTION = '/v1/openapi.json';
const OUR_PAGE = join(import.meta.dirname, 'page');
const SWAGGER_UI = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));

/**
 * For an address. A first look costs 33, so a hundred people behind one address can look in the same minute; and no address has
 * more than 4 MB a second.
 */
export const READS_PER_MINUTE = 4_000;
/** As much costs one read more. */
const BYTES_PER_READ = 65_536;

/** Asked for anew each time, and answered with 304 while it is the same. */
const OURS = 'no-cache';
/** Changes with a release of the package only. */
const THEIRS = 'public, max-age=86400';
/** Under a version in the query, a file never changes: a reload does not ask for it. */
const FOR_EVER = 'public, max-age=31536000, immutable';

const FILES = [
  { path: DESCRIPTION, type: 'application/json', from: join(import.meta.dirname, 'openapi.json'), keep: OURS },
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
  /** What the page asks for it by, in the query. */
  readonly version: string;
  readonly #keep: string;
  /** On every answer with this file, 304 included; Cache-Control is beside them. */
  readonly headers: readonly string[];
  #compressed: Promise<Buffer> | undefined;

  constructor(path: string, status: number, body: Buffer, keep: string, headers: readonly string[]) {
    this.path = path;
    this.status = status;
    this.body = body;
    this.etag = etagOf(body);
    this.version = `v=${this.etag.slice('W/"'.length, -1)}`;
    this.#keep = keep;
    this.headers = ['ETag', this.etag, 'Vary', 'Accept-Encoding', ...SAFETY, ...headers];
  }

  /** Reads that it costs its address to be sent the file. */
  get cost(): number {
    return 1 + Math.floor(this.body.length / BYTES_PER_READ);
  }

  /** How long the answer may be kept. @param query as it was asked with */
  cacheControl(query: string): string {
    return query === this.version ? FOR_EVER : this.#keep;
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
    const readable = path === DESCRIPTION ? ['Access-Control-Allow-Origin', '*'] : [];
    return new ReferenceFile(path, 200, readFileSync(from), keep, ['Content-Type', type, ...readable]);
  });
  const html = ['Content-Type', 'text/html; charset=utf-8'];
  const page = new ReferenceFile('/docs/', 200, Buffer.from(pageWith(files)), OURS, html);
  const slash = new ReferenceFile('/docs', 308, Buffer.alloc(0), THEIRS, ['Location', '/docs/']);
  return new Map([...files, page, slash].map((file) => [file.path, file]));
}

/** The page, naming each file in the version that we have. */
function pageWith(files: readonly ReferenceFile[]): string {
  const page = readFileSync(join(OUR_PAGE, 'index.html'), 'utf8');
  return files.reduce((text, { path, version }) => {
    const name = path.replace(/^\/docs\//, '');
    return text
      .replace(`src="${name}"`, `src="${name}?${version}"`)
      .replace(`href="${name}"`, `href="${name}?${version}"`);
  }, page);
}
