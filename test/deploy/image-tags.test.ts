import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkOut } from '../support/check-out.ts';
import { ROOT } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';
import { thoroughly } from '../support/thorough.ts';

/** Tests deploy/images.sh in a separate repository, with a fake docker that records its arguments. */

const DIGEST = `@sha256:${'5'.repeat(64)}`;
const DOCKER = `#!/bin/sh
echo "$*" >> "$SAID"
if [ "$1" = pull ]; then printf 'trixie-slim: Pulling from library/node\n%s\nStatus: Image is up to date\n' "$PULLED"; fi
`;

async function fromScratch() {
  const said = join(await temporaryFolder(), 'said');
  await writeFile(said, '');
  const { run, ...repository } = await checkOut(['deploy/Dockerfile', 'deploy/images.sh'], DOCKER);
  return {
    ...repository,
    run: (args: readonly string[] = [], env: NodeJS.ProcessEnv = {}) => run(args, { SAID: said, ...env }),
    said: async () => (await readFile(said, 'utf8')).trim().split('\n').filter(Boolean),
  };
}

test('images are tagged with the commit and built on the pinned base image', async () => {
  const { run, commit, digestFile, said } = await fromScratch();
  await writeFile(digestFile, DIGEST);
  const first = commit();
  const names = ['core', 'gateway'].map((name) => `registry.example/team/animal-store-${name}:${first}`);
  expect(await run(['registry.example/team'])).toEqual({ code: 0, out: `${names.join('\n')}\n`, err: '' });
  expect(await said()).toEqual(
    ['core', 'gateway'].map(
      (target, at) =>
        `build --quiet --file deploy/Dockerfile --target ${target} --build-arg NODE_DIGEST=${DIGEST} --label org.opencontainers.image.revision=${first} --tag ${names[at]} .`,
    ),
  );
  await writeFile(digestFile, `${DIGEST}\n`);
  const second = commit();
  expect(second).not.toBe(first);
  expect((await run()).out).toBe(`animal-store-core:${second}\nanimal-store-gateway:${second}\n`);
});

test('nothing is built on an unpinned base image or from uncommitted changes', async () => {
  const { run, commit, digestFile, said } = await fromScratch();
  commit();
  expect(await run()).toMatchObject({ code: 1, err: expect.stringMatching(/^The base image node:\S+ is not pinned/) });
  const bad = ['', `${DIGEST}5`, `latest${DIGEST}`, 'sha256:5', '@sha256:55'];
  for (const digest of bad.slice(0, thoroughly(bad.length, 3))) {
    await writeFile(digestFile, digest);
    expect(await run()).toMatchObject({ code: 1, err: expect.stringMatching(/^The checkout has changes/) });
    commit();
    expect(await run()).toMatchObject({ code: 1, err: expect.stringMatching(/contains no digest/) });
  }
  expect(await said()).toEqual([]);
});

test('UNPINNED=1 builds without a digest', async () => {
  const { run, commit, said } = await fromScratch();
  commit();
  expect((await run([], { UNPINNED: '1' })).code).toBe(0);
  expect((await said())[0]).toContain(' --build-arg NODE_DIGEST= ');
});

test('pinning records only the digest of the image that the Dockerfile names', async () => {
  const { run, digestFile, said } = await fromScratch();
  const version = /^FROM (node:[\w.-]+)/m.exec(await readFile(join(ROOT, 'deploy/Dockerfile'), 'utf8'))?.[1];
  expect((await run(['pin'], { PULLED: `Digest: ${DIGEST.slice(1)}` })).code).toBe(0);
  expect(await readFile(digestFile, 'utf8')).toBe(`${DIGEST}\n`);
  expect((await said())[0]).toBe(`pull ${version}`);
  expect((await run(['pin'], { PULLED: '' })).code).toBe(1);
  expect(await readFile(digestFile, 'utf8')).toBe(`${DIGEST}\n`);
});

test('every stage based on the Node image uses the digest', async () => {
  const text = await readFile(join(ROOT, 'deploy/Dockerfile'), 'utf8');
  const bases = text.match(/^FROM node:.*$/gm) ?? [];
  expect(bases).toHaveLength(3);
  for (const base of bases) expect(base).toMatch(/^FROM node:\d+\.\d+\.\d+-trixie-slim\$\{NODE_DIGEST\} AS /);
});
