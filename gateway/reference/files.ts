import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { PlanTable } from '../limiter/plans.ts';
import type { GatewayRoute } from '../routes.ts';
import { etagOf, safetyHeaders } from '../static-file.ts';
import type { Document } from './document.ts';
import { operationParts } from './operations-page.ts';
import { pageParts } from './page-text.ts';

/**
 * The API reference consists of exactly these files under these paths, kept in memory. The page shows the plans that
 * are in force. It is our own, because no known renderer shows the limits of the reader's key or puts the key into the
 * samples. Besides, Swagger UI takes 12 MB, and Scalar needs inline styles and its maker's proxy.
 */
export interface Reference {
  /** Undefined if there is no such file. */
  get(path: string): ReferenceFile | undefined;
}

const DESCRIPTION = '/v1/openapi.json';
const PAGE = '/docs/';
const OUR_PAGE = join(import.meta.dirname, 'page');

/** The limit per address: hundreds of people behind one can visit in a minute, and none gets over 4 MB a second. */
export const READS_PER_MINUTE = 4_000;
/** A file costs one more read for each such amount. */
const BYTES_PER_READ = 65_536;

/** The file is revalidated each time, and answered with 304 while unchanged. */
const OURS = 'no-cache';
/** A redirect never changes. */
const A_DAY = 'public, max-age=86400';
/** With a version in the query a file never changes, so that a reload does not request it. */
const FOR_EVER = 'public, max-age=31536000, immutable';

const FILES = [
  { path: DESCRIPTION, type: 'application/json', from: join(import.meta.dirname, 'openapi.json'), keep: OURS },
  ...[
    { name: 'page.css', type: 'text/css; charset=utf-8' },
    { name: 'parts.css', type: 'text/css; charset=utf-8' },
    { name: 'page.js', type: 'text/javascript; charset=utf-8' },
    { name: 'icon.svg', type: 'image/svg+xml' },
  ].map(({ name, type }) => ({ path: PAGE + name, type, from: join(OUR_PAGE, name), keep: OURS })),
];

const SAFETY = safetyHeaders("img-src 'self'");

const gzipped = promisify(gzip);

/** A file of the reference, as an operation that the gateway answers itself. */
export class ReferenceFile implements GatewayRoute {
  readonly operation = 'reference';
  readonly method = 'GET';
  readonly takesBody = false;
  readonly path: string;
  readonly status: number;
  readonly body: Buffer;
  readonly etag: string;
  /** The version that the page puts into the query. */
  readonly version: string;
  readonly #keep: string;
  /** The headers of every answer with this file, including 304. Cache-Control is added separately. */
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

  /** The cost of sending the file, in reads of the client address. */
  get cost(): number {
    return 1 + Math.floor(this.body.length / BYTES_PER_READ);
  }

  /** How long the answer may be cached. @param query of the request */
  cacheControl(query: string): string {
    return query === this.version ? FOR_EVER : this.#keep;
  }

  /** The file is compressed on first use. */
  compressed(): Promise<Buffer> {
    this.#compressed ??= gzipped(this.body);
    return this.#compressed;
  }
}

/**
 * Reads the files once.
 * @param plans returns the plans in force; the page is rendered again when they have changed
 * @throws the system's error if a file is missing
 */
export function loadReference(plans: () => PlanTable): Reference {
  const files = FILES.map(({ path, type, from, keep }) => {
    const readable = path === DESCRIPTION ? ['Access-Control-Allow-Origin', '*'] : [];
    return new ReferenceFile(path, 200, readFileSync(from), keep, ['Content-Type', type, ...readable]);
  });
  const slash = new ReferenceFile('/docs', 308, Buffer.alloc(0), A_DAY, ['Location', PAGE]);
  const fixed = new Map([...files, slash].map((file) => [file.path, file]));
  const api = JSON.parse(String(fixed.get(DESCRIPTION)?.body)) as Document;
  const text = withParts(readFileSync(join(OUR_PAGE, 'index.html'), 'utf8'), operationParts(api));
  const template = withVersions(text, files);
  let shown = plans();
  let page = pageWith(template, shown);
  return {
    get(path) {
      if (path !== PAGE) return fixed.get(path);
      const now = plans();
      if (now !== shown) {
        shown = now;
        const text = textWith(template, now);
        if (!page.body.equals(Buffer.from(text))) page = pageWith(template, now);
      }
      return page;
    },
  };
}

function pageWith(template: string, plans: PlanTable): ReferenceFile {
  return new ReferenceFile(PAGE, 200, Buffer.from(textWith(template, plans)), OURS, [
    'Content-Type',
    'text/html; charset=utf-8',
  ]);
}

const textWith = (template: string, plans: PlanTable): string => withParts(template, pageParts(plans));

/** Puts parts in place of their marks in the page. */
const withParts = (template: string, parts: Readonly<Record<string, string>>): string =>
  Object.entries(parts).reduce((text, [mark, part]) => text.replace(`<!-- ${mark} -->`, () => part), template);

/** Puts the current version of each file into its URLs in the page, so that browsers can cache them. */
const withVersions = (page: string, files: readonly ReferenceFile[]): string =>
  files.reduce((text, { path, version }) => {
    const name = path.replace(PAGE, '');
    return text.replaceAll(new RegExp(`(<(?:link|script) [^>]*(?:href|src)="${name})"`, 'g'), `$1?${version}"`);
  }, page);
