import { open } from 'node:fs/promises';
import type { Logger } from './logger.ts';
import { every } from './repeat.ts';

const LOOK_EVERY_MS = 1_000;

/**
 * Checks once a second whether a file descriptor is left, and logs an error if not. Node does not report this: libuv
 * closes connections that it cannot accept.
 * @param onExhausted called for every such error
 * @returns a function that stops the checks
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
  return every(LOOK_EVERY_MS, look);
}
