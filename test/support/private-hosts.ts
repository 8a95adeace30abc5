import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from './stack.ts';

/** An /etc/hosts of a test's own. */
export interface PrivateHosts {
  /** In front of a command: what is started so finds names there, and nowhere else. */
  readonly within: readonly string[];
  /** From now on the names are these, each with its addresses. */
  set(names: Readonly<Record<string, readonly string[]>>): Promise<void>;
}

/** The file is written in place, so that it is never seen half: one write of one size. */
const SIZE = 2_048;
const MOUNT = 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"';

/** Mounted where only the started process sees it. Needs root, or a kernel that lets anyone have namespaces. */
export async function privateHosts(): Promise<PrivateHosts> {
  const folder = await temporaryFolder();
  const [hosts, switches] = [join(folder, 'hosts'), join(folder, 'nsswitch.conf')];
  await writeFile(switches, 'hosts: files\n');
  const set: PrivateHosts['set'] = async (names) => {
    const lines = Object.entries(names).flatMap(([name, addresses]) => addresses.map((one) => `${one} ${name}\n`));
    const file = await open(hosts, 'a+').then((created) => created.close().then(() => open(hosts, 'r+')));
    await file.write(lines.join('').padEnd(SIZE, '\n'), 0);
    await file.close();
  };
  await set({});
  const namespace = process.getuid?.() === 0 ? ['--mount'] : ['--map-root-user', '--mount'];
  return { within: ['unshare', ...namespace, 'sh', '-c', MOUNT, hosts, switches], set };
}
