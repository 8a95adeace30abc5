import type { Logger } from '../shared/logger.ts';
import type { Running } from '../shared/run.ts';
import { startServer } from '../shared/server.ts';
import { createService } from '../shared/service.ts';
import type { CoreSettings } from './config.ts';
import { ROUTES } from './routes.ts';
import { SqliteStore } from './store/sqlite.ts';

/** Wires the core: store, then operations, then server; stops in reverse. */
export async function startCore(settings: CoreSettings, logger: Logger): Promise<Running> {
  const store = new SqliteStore(settings.DATABASE_URL.slice('sqlite:'.length));
  const onRequest = createService({
    routes: ROUTES,
    parts: { store, bodyLimitBytes: settings.BODY_LIMIT_BYTES },
    logger,
    token: settings.CORE_TOKEN,
    ready: () => !server.stopping,
  });
  const server = await startServer({ host: settings.HOST, port: settings.PORT, onRequest });
  return {
    addresses: { core: server.url },
    async stop() {
      await server.stop();
      await store.close();
    },
  };
}
