import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { cleanUp } from './clean-up.ts';

/** A span, of what OTLP's JSON tells (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). */
export interface Span {
  readonly service: string;
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
}

interface Attribute {
  readonly key: string;
  readonly value: { readonly stringValue?: string };
}

interface Export {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly Omit<Span, 'service'>[] }[];
  }[];
}

/** A collector of traces in JSON that keeps all spans. @param host where it listens */
export async function otlpCollector(host: string): Promise<{ url: string; spans: readonly Span[] }> {
  const spans: Span[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    if (request.url === '/v1/traces') spans.push(...spansIn(JSON.parse(Buffer.concat(chunks).toString()) as Export));
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  server.listen(0, host);
  await once(server, 'listening');
  cleanUp(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://${host}:${(server.address() as AddressInfo).port}`, spans };
}

const spansIn = ({ resourceSpans }: Export): Span[] =>
  resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = resource.attributes.find(({ key }) => key === 'service.name')?.value.stringValue ?? '';
    return scopeSpans.flatMap(({ spans }) => spans.map((span) => ({ ...span, service })));
  });
