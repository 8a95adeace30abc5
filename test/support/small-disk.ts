import { execFile } from 'node:child_process';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cleanUp } from './clean-up.ts';
import { temporaryFolder } from './stack.ts';

const run = promisify(execFile);

export interface Disk {
  readonly folder: string;
  /** Takes all the room there is. */
  fill(): Promise<void>;
  free(): Promise<void>;
  /** @param mode `ro` or `rw` */
  remount(mode: 'ro' | 'rw'): Promise<void>;
}

/** A disk of its own, unmounted after the test; undefined if this process may not mount one. */
export async function smallDisk(megabytes: number): Promise<Disk | undefined> {
  const folder = await temporaryFolder();
  const mounted = await run('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder]).catch(
    () => undefined,
  );
  if (mounted === undefined) return undefined;
  cleanUp(() => run('umount', ['--lazy', folder]));
  const filler = join(folder, 'filler');
  return {
    folder,
    async fill() {
      const file = await open(filler, 'a');
      for (let size = 65_536; size >= 1; ) {
        const written = await file.write(Buffer.alloc(size, 1)).then(
          ({ bytesWritten }) => bytesWritten,
          () => 0,
        );
        if (written < size) size = Math.floor(size / 2);
      }
      await file.close();
    },
    free: () => rm(filler),
    remount: async (mode) => void (await run('mount', ['-o', `remount,${mode}`, folder])),
  };
}
