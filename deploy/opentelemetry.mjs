/**
 * Adds OpenTelemetry's spans to gateway and core. This is optional, so its packages are not among the dependencies.
 * Install them first:
 *
 *     npm install --no-save @opentelemetry/api @opentelemetry/sdk-node \
 *       @opentelemetry/instrumentation-http @opentelemetry/instrumentation-undici
 *
 * Then load this file before a service. The SDK's own settings determine where spans are sent:
 *
 *     OTEL_SERVICE_NAME=gateway OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 \
 *       node --import ./deploy/opentelemetry.mjs gateway/main.ts
 *
 * opentelemetry.Dockerfile builds images with it.
 */
import { IncomingMessage } from 'node:http';
import { context, propagation, trace } from '@opentelemetry/api';
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import { NodeSDK } from '@opentelemetry/sdk-node';

const OURS = new Set(['traceparent', 'tracestate']);

/** Makes the service's log and its own requests use the trace of the new span: the caller's trace, or a new one. */
function nameTrace(span, request) {
  if (!(request instanceof IncomingMessage)) return;
  for (const name of OURS) delete request.headers[name];
  propagation.inject(trace.setSpan(context.active(), span), request.headers);
}

/** Removes our trace headers from a request. The library adds its own, which name the same trace. */
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
