import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { readCoreSettings } from '../../../core/config.ts';
import type { CoreCall, CoreDependencies, CoreOperation } from '../../../core/operation.ts';
import { ROUTES } from '../../../core/routes.ts';
import { SqliteStore } from '../../../core/store/sqlite.ts';
import { startServer } from '../../../shared/http/server.ts';
import { bearerTokens, createService, type ServiceRoute } from '../../../shared/http/service.ts';
import { createLogger } from '../../../shared/process/logger.ts';
import { createMetrics } from '../../../shared/process/metrics.ts';
import { run } from '../../../shared/process/run.ts';

/**
 * The core's operations on SQLite, with three faults that the query of a request can cause:
 *
 *     ?wait=<ms>      the response is delayed
 *     ?bytes=<size>   the response has this size
 *     ?stick=1        no response is ever sent again on the connection of the first such request
 *
 * The environment variable SLOTS makes the core slow: it handles this many requests at once, each in 20 ms, in the order
 * of their arrival.
 */

const CHUNK = Buffer.alloc(65_536, 'x');
const MAX_HEADER_BYTES = 32_768;
const SLOT_MS = 20;

const never = (): Promise<never> => new Promise(() => {});
let stuck: Socket | undefined;
/** For each slot, the end of its last request. The first slot becomes free first. */
const slots = Array.from({ length: Number(process.env.SLOTS ?? 0) }, () => Promise.resolve());

/** Occupies the slot that becomes free first. */
async function takeTurn(): Promise<void> {
  const turn = slots.shift()?.then(() => sleep(SLOT_MS));
  if (turn !== undefined) slots.push(turn);
  await turn;
}

/** Lets other requests run between two chunks, because the row measures the gateway, not this core. */
async function* chunks(bytes: number): AsyncGenerator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK.length) {
    yield left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK;
    await nextTurn();
  }
}

/** Sends a response of this size. It is not an error if the client disconnects early. */
async function answerWith(bytes: number, { request, response }: CoreCall): Promise<never> {
  const requestId = String(request.headers['x-request-id'] ?? '');
  const headers = { 'Content-Type': 'application/json', 'Content-Length': bytes, 'X-Request-Id': requestId };
  response.writeHead(200, headers);
  await pipeline(Readable.from(chunks(bytes)), response).catch(() => {});
  return await never();
}

const faulty =
  (operation: CoreOperation): CoreOperation =>
  async (call) => {
    const { query, request } = call;
    if (query.has('stick')) stuck ??= request.socket;
    if (request.socket === stuck) return await never();
    if (query.has('bytes')) return await answerWith(Number(query.get('bytes')), call);
    if (query.has('wait')) await sleep(Number(query.get('wait')));
    await takeTurn();
    query.delete('wait');
    query.delete('stick');
    return await operation(call);
  };

await run(async () => {
  const { HOST, DATABASE_URL, BODY_LIMIT_BYTES, LOG_LEVEL } = readCoreSettings(process.env);
  const logger = createLogger('core', LOG_LEVEL);
  const store = new SqliteStore(DATABASE_URL.slice('sqlite:'.length));
  const routes = ROUTES.map(
    (route): ServiceRoute<CoreDependencies> => ({ ...route, operation: faulty(route.operation) }),
  );
  const service = createService({
    routes,
    deps: { store, bodyLimitBytes: BODY_LIMIT_BYTES },
    logger,
    metrics: createMetrics('core'),
    access: bearerTokens(() => undefined),
    async check() {
      await store.check();
      return undefined;
    },
  });
  const server = await startServer({ host: HOST, port: 0, ...service, maxHeaderBytes: MAX_HEADER_BYTES });
  return { running: { addresses: { core: server.url }, stop: () => server.stop() }, logger };
});
