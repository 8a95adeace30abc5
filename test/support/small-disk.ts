import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { cleanUp } from './clean-up.ts';
import { startProcess } from './process.ts';
import { temporaryFolder } from './stack.ts';

const run = promisify(execFile);

/** A program that writes to a file continuously. */
const FILLER = `
  const { openSync, writeSync } = require('node:fs');
  const file = openSync(process.argv[1], 'a');
  const page = Buffer.alloc(4096, 1);
  for (let isReported = false; ; ) {
    try {
      writeSync(file, page);
    } catch {
      if (!isReported) writeSync(1, 'full\\n');
      isReported = true;
    }
  }
`;

/** Mounts a small disk until the end of the test. @returns undefined if this process is not allowed to mount one */
export async function smallDisk(megabytes: number) {
  const folder = await temporaryFolder();
  const mounted = await run('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder]).catch(
    () => undefined,
  );
  if (mounted === undefined) return undefined;
  cleanUp(() => run('umount', ['--lazy', folder]));
  const filler = join(folder, 'filler');
  return {
    folder,
    /** Fills the disk except for this many bytes. */
    async fill(left = 0) {
      const file = await open(filler, 'a');
      for (let size = 65_536; size >= 1; ) {
        const written = await file.write(Buffer.alloc(size, 1)).then(
          ({ bytesWritten }) => bytesWritten,
          () => 0,
        );
        if (written < size) size = Math.floor(size / 2);
      }
      if (left > 0) await file.truncate((await file.stat()).size - left);
      await file.close();
    },
    free: () => rm(filler),
    /** Keeps the disk full from a separate process until the test ends. */
    async keepFull() {
      const { child, out } = startProcess(process.execPath, ['-e', FILLER, join(folder, 'other filler')], {});
      await once(child.stdout as NodeJS.ReadableStream, 'data');
      expect(out()).toBe('full\n');
    },
    remount: async (mode: 'ro' | 'rw') => void (await run('mount', ['-o', `remount,${mode}`, folder])),
  };
}
