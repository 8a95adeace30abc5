import type { Logger } from '../shared/process/logger.ts';
import { currentSecret } from '../shared/process/secret.ts';
import { GatewaySettings } from './config.ts';

/** How long a token that was read from a file is used before the file is read again. */
const TOKEN_AGE_MS = 1_000;

/** The token that is sent to the core: the first of several. */
export function coreTokenOf(settings: GatewaySettings, logger: Logger): () => string | undefined {
  const tokens = currentSecret(GatewaySettings, settings, 'CORE_TOKEN', { logger, maxAgeMs: TOKEN_AGE_MS });
  return () => tokens()?.[0];
}
