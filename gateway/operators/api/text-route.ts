import type { ServiceRoute } from '../../../shared/http/service.ts';
import { etagOf, isCurrent } from '../../static-file.ts';

interface TextFile {
  readonly status?: number;
  readonly type: string;
  /** Headers besides those for caching. */
  readonly headers: readonly string[];
  /** Called at the first request. */
  read(): string | Promise<string>;
}

/** Serves a file for browsers without a token. It is read once and kept in memory. */
export function textRoute(
  name: string,
  path: string,
  { status = 200, type, headers, read }: TextFile,
): ServiceRoute<unknown, unknown> {
  let file: { readonly etag: string; readonly text: string } | undefined;
  async function load() {
    const text = await read();
    return { text, etag: etagOf(text) };
  }
  return {
    name,
    method: 'GET',
    path,
    isOpen: true,
    async operation({ request }) {
      file ??= await load();
      const all = ['ETag', file.etag, 'Cache-Control', 'no-cache', ...headers];
      if (status === 200 && isCurrent(request.headers['if-none-match'], file.etag))
        return { status: 304, headers: all };
      return { status, json: file.text, headers: ['Content-Type', type, ...all] };
    },
  };
}
