import { open } from 'node:fs/promises';
import type { Logger } from './logger.ts';

const LOOK_EVERY_MS = 1_000;

/**
 * Looks once a second whether there is a file descriptor left, and writes a line whenever there is none. Node tells nobody:
 * libuv closes the connections that it then cannot take.
 * @param onExhausted called as often as the line is written
 * @returns what ends it
 */
export function watchDescriptors(logger: Logger, onExhausted: () => void): () => void {
  async function look(): Promise<void> {
    try {
      await (await open('/dev/null', 'r')).close();
    } catch (fault) {
      const { code } = fault as NodeJS.ErrnoException;
      if (code !== 'EMFILE' && code !== 'ENFILE') return;
      onExhausted();
      logger.error(
        { reason: code },
        'no file descriptor is left: new connections are closed; raise the limit (ulimit -n)',
      );
    }
  }
  const looking = setInterval(() => void look(), LOOK_EVERY_MS).unref();
  return () => clearInterval(looking);
}
