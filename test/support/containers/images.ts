import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../root.ts';
import { temporaryFolder } from '../stack.ts';
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
  // A copy of the Dockerfile without the digests of its base images, because a stand-in for a base image has the same
  // name and tag but another digest.
  const dockerfile = join(await temporaryFolder(), 'Dockerfile');
  writeFileSync(dockerfile, withoutDigest(readFileSync(join(ROOT, 'deploy', file), 'utf8')));
  // The engine's own networks have no access to the outside, so npm uses the machine's network.
  const options = ['--network', 'host', '--target', target, '--tag', image, '--file', dockerfile];
  await docker(['build', ...options, join(ROOT, context)], BUILD_MS);
}

/** The size of an image's layers in bytes, including those of its base. */
export const sizeOf = async (docker: Docker, image: string): Promise<number> =>
  Number(await docker(['image', 'inspect', '--format', '{{.Size}}', image]));
