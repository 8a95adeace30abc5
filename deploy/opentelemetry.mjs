/**
 * Adds OpenTelemetry's spans to gateway and core. It is optional, so its packages are no dependencies. It needs
 *
 *     npm install --no-save @opentelemetry/api @opentelemetry/sdk-node \
 *       @opentelemetry/instrumentation-http @opentelemetry/instrumentation-undici
 *
 * and is loaded before a service. The SDK's own settings say where spans go:
 *
 *     OTEL_SERVICE_NAME=gateway OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 \
 *       node --import ./deploy/opentelemetry.mjs gateway/main.ts
 *
 * opentelemetry.Dockerfile makes images of it.
 */
import { IncomingMessage } from 'node:http';
import { context, propagation, trace } from '@opentelemetry/api';
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import { NodeSDK } from '@opentelemetry/sdk-node';

const OURS = new Set(['traceparent', 'tracestate']);

/** The service's log and its own requests use the trace of the span that has begun, which is the caller's if there is one. */
function nameTrace(span, request) {
  if (!(request instanceof IncomingMessage)) return;
  for (const name of OURS) delete request.headers[name];
  propagation.inject(trace.setSpan(context.active(), span), request.headers);
}

/** The library adds its own trace headers to a request. Ours name the same trace and would be duplicates. */
function leaveToTheLibrary(_span, request) {
  const { headers } = request;
  for (let at = headers.length - 2; at >= 0; at -= 2)
    if (OURS.has(String(headers[at]).toLowerCase())) headers.splice(at, 2);
}

new NodeSDK({
  instrumentations: [
    new HttpInstrumentation({ requestHook: nameTrace }),
    new UndiciInstrumentation({ requestHook: leaveToTheLibrary }),
  ],
}).start();
