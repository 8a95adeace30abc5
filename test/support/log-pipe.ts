import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { cleanUp } from './clean-up.ts';
import { temporaryFolder } from './stack.ts';

/**
 * Creates a pipe like those of a shell. It is read at an adjustable rate, which is 0 at first, and is closed after the
 * test, or after the test file.
 */
export async function logPipe() {
  const path = `${await temporaryFolder()}/log`;
  execFileSync('mkfifo', [path]);
  const end = openSync(path, constants.O_RDWR);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const chunk = Buffer.alloc(65_536);
  let length = 0;
  let text = '';
  const read = () => {
    try {
      text += chunk.toString('latin1', 0, readSync(reader, chunk, { length }));
    } catch {
      // EAGAIN: there is nothing to read.
    }
  };
  const timer = setInterval(() => length > 0 && read(), 5);
  cleanUp(() => {
    clearInterval(timer);
    closeSync(reader);
    closeSync(end);
  });
  return {
    /** The file descriptor for a process's standard output. */
    end,
    /** Sets the rate. @param bytes the number of bytes to read every five milliseconds */
    read(bytes: number) {
      length = Math.min(bytes, chunk.length);
    },
    text: () => text,
  };
}
