# Both images of Dockerfile with OpenTelemetry. From the root of the project:
#   docker build -f deploy/opentelemetry.Dockerfile --target gateway -t animal-store-gateway:traced deploy
#   docker build -f deploy/opentelemetry.Dockerfile --target core -t animal-store-core:traced deploy
# They read OpenTelemetry's own settings: OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_ENDPOINT and so on.

FROM animal-store-gateway AS packages
USER 0:0
RUN npm install --no-save --save-exact --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund \
  @opentelemetry/api@1.10.0 @opentelemetry/sdk-node@0.301.0 \
  @opentelemetry/instrumentation-http@0.301.0 @opentelemetry/instrumentation-undici@0.34.0

FROM animal-store-core AS core
COPY --from=packages /app/node_modules ./node_modules
COPY opentelemetry.mjs deploy/
CMD ["node", "--no-strip-types", "--import=./deploy/stripped/load.mjs", "--import=./deploy/opentelemetry.mjs", "core/main.ts"]

FROM animal-store-gateway AS gateway
COPY --from=packages /app/node_modules ./node_modules
COPY opentelemetry.mjs deploy/
CMD ["node", "--no-strip-types", "--import=./deploy/stripped/load.mjs", "--import=./deploy/opentelemetry.mjs", "gateway/main.ts"]
