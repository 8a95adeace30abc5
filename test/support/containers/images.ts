import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../root.ts';
import type { Docker } from './docker.ts';
import { withoutDigest } from './stand-ins.ts';

/** Our own images, built from the shipped Dockerfiles. */

const BUILD_MS = 300_000;

/** Builds a target of a Dockerfile in deploy/, from a context in the project, and gives it a name. */
export async function buildImage(
  docker: Docker,
  target: string,
  image: string,
  file = 'Dockerfile',
  context = '.',
): Promise<void> {
  const [dockerfile, dispose] = unpinned(join(ROOT, 'deploy', file));
  try {
    // The engine's own networks have no access to the outside, so npm uses the machine's network.
    const options = ['--network', 'host', '--target', target, '--tag', image, '--file', dockerfile];
    await docker(['build', ...options, join(ROOT, context)], BUILD_MS);
  } finally {
    dispose();
  }
}

/** The file, or a copy without digests, because a stand-in has the name and tag of its image but another digest. */
export function unpinned(file: string): readonly [path: string, dispose: () => void] {
  const text = readFileSync(file, 'utf8');
  if (withoutDigest(text) === text) return [file, () => {}];
  const folder = mkdtempSync(join(tmpdir(), 'animal-store-unpinned-'));
  const copy = join(folder, 'file');
  writeFileSync(copy, withoutDigest(text));
  return [copy, () => rmSync(folder, { recursive: true })];
}

/** The size of an image's layers in bytes, including those of its base. */
export const sizeOf = async (docker: Docker, image: string): Promise<number> =>
  Number(await docker(['image', 'inspect', '--format', '{{.Size}}', image]));
