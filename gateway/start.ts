import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { HttpError } from '../shared/errors.ts';
import type { Logger } from '../shared/logger.ts';
import { createMetrics } from '../shared/metrics.ts';
import type { Running } from '../shared/run.ts';
import { startServer } from '../shared/server.ts';
import { createService } from '../shared/service.ts';
import { AddressAllowance } from './access/address-allowance.ts';
import type { Access } from './access/limiter.ts';
import { memoryAccess } from './access/memory/access.ts';
import { PlanBook } from './access/plan-book.ts';
import type { PlanTable } from './access/plans.ts';
import { redisAccess } from './access/redis/access.ts';
import { connectRedis } from './access/redis/connection.ts';
import { ROUTES as ADMIN_ROUTES } from './admin/routes.ts';
import { keptToken } from './admin/token.ts';
import type { GatewaySettings } from './config.ts';
import { clientAddress } from './edge/client-address.ts';
import { createGateway } from './gateway.ts';
import { limitHeaders } from './respond/limit-headers.ts';
import { connectionError, sendRawError } from './respond/send-error.ts';
import { createForwarder } from './upstream/forward.ts';

/** Wires the gateway in order of need: access, plans, upstream, gateway, operators; stops in reverse. */
export async function startGateway(settings: GatewaySettings, logger: Logger): Promise<Running> {
  const access = await openAccess(settings, logger, () => planBook.table);
  const planBook = new PlanBook(access.plans, logger);
  await planBook.start();
  const forwarder = createForwarder(settings.CORE_URL, settings.CORE_TIMEOUT_MS);
  const allowance = new AddressAllowance();
  const draftFields = settings.RATELIMIT_FIELDS === 'on';

  const server = await startServer({
    host: settings.HOST,
    port: settings.PORT,
    onRequest: createGateway({
      limiter: access.limiter,
      allowance,
      forwarder,
      logger,
      bodyLimitBytes: settings.BODY_LIMIT_BYTES,
      draftFields,
      coreToken: settings.CORE_TOKEN,
    }),
    onUnusable: (fault, socket) => answerConnection({ fault, socket, allowance, draftFields, logger }),
    // The longest wait for the core must not look like silence.
    silenceMs: Math.max(35_000, settings.CORE_TIMEOUT_MS + 5_000),
  });
  const admin = await startServer({
    host: settings.ADMIN_HOST,
    port: settings.ADMIN_PORT,
    onRequest: createService({
      routes: ADMIN_ROUTES,
      parts: { keys: access.keys, plans: access.plans, planBook },
      logger,
      token: settings.ADMIN_TOKEN ?? (await keptToken(settings.DATA_DIR)),
      metrics: createMetrics('gateway_admin'),
      async check() {
        if (server.stopping) throw new HttpError('unavailable', 'The service is stopping.');
      },
    }),
  });

  return {
    addresses: { gateway: server.url, admin: admin.url },
    async stop(lameDuckMs) {
      await server.stop({ lameDuckMs });
      await admin.stop();
      await forwarder.close();
      planBook.stop();
      await access.close();
    },
  };
}

interface UnusableConnection {
  readonly fault: NodeJS.ErrnoException;
  readonly socket: Socket;
  readonly allowance: AddressAllowance;
  readonly draftFields: boolean;
  readonly logger: Logger;
}

/** A connection that brought no request gets its answer and its line in the log all the same, unless it is gone. */
function answerConnection({ fault, socket, allowance, draftFields, logger }: UnusableConnection): void {
  if (!socket.writable || fault.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const address = clientAddress(socket.remoteAddress);
  allowance.charge(address);
  const error = connectionError(fault);
  const requestId = randomUUID();
  sendRawError(socket, error, requestId, limitHeaders(allowance.look(address), draftFields));
  logger.info({ requestId, status: error.status, code: error.code, address, reason: fault.code }, 'request');
}

async function openAccess(settings: GatewaySettings, logger: Logger, plans: () => PlanTable): Promise<Access> {
  if (settings.REDIS_URL === undefined) return await memoryAccess(settings.DATA_DIR, plans);
  return redisAccess(await connectRedis(settings.REDIS_URL, settings.REDIS_TIMEOUT_MS, logger), plans, logger);
}
