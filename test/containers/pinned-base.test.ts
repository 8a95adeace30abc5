import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { checkOut } from '../support/check-out.ts';
import { cleanUp } from '../support/clean-up.ts';
import { dockerOn, environmentOf } from '../support/containers/docker.ts';
import { REGISTRY } from '../support/containers/engine.ts';
import { nameInDeploy } from '../support/containers/stand-ins.ts';
import { send } from '../support/http.ts';
import { need, pathOf } from '../support/install.ts';
import { ROOT, startProcess } from '../support/process.ts';
import { temporaryFolder } from '../support/stack.ts';

/** Starts a real, empty registry, from which the tests' engine pulls. It is stopped after the test. */
async function startRegistry(): Promise<void> {
  need('docker-registry');
  const folder = await temporaryFolder();
  const configuration = {
    version: 0.1,
    storage: { filesystem: { rootdirectory: join(folder, 'data') } },
    http: { addr: REGISTRY },
  };
  const file = join(folder, 'config.yml');
  // JSON is valid YAML.
  writeFileSync(file, JSON.stringify(configuration));
  startProcess('docker-registry', ['serve', file], {}, { stdio: 'ignore' });
  const isUp = () =>
    send(`http://${REGISTRY}/v2/`).then(
      ({ status }) => status,
      () => 0,
    );
  await expect.poll(isUp).toBe(200);
}

const engine = inject('engineSocket');
const docker = dockerOn(engine);
/** A docker command that passes all arguments on, and lets npm use the machine's network during builds. */
const DOCKER = `#!/bin/sh
if [ "$1" = build ]; then shift; set -- build --network host "$@"; fi
exec "$DOCKER" "$@"
`;

const inspect = (format: string, image: string) => docker(['image', 'inspect', '--format', format, image]);
const layersOf = async (image: string): Promise<string[]> =>
  JSON.parse(await inspect('{{json .RootFS.Layers}}', image)) as string[];

test.skipIf(engine === '')('both images are built on the pinned base, even if its tag moves', async () => {
  const base = nameInDeploy('node');
  await startRegistry();
  const [layers, id] = [await layersOf(base), await inspect('{{.Id}}', base)];
  const pushed = `${REGISTRY}/library/${base}`;
  await docker(['tag', base, pushed]);
  cleanUp(() => docker(['rmi', pushed]));
  const [digest = 'none'] = /sha256:[0-9a-f]{64}/.exec(await docker(['push', pushed], 300_000)) ?? [];

  const files = execFileSync('git', ['ls-files', '-z'], { cwd: ROOT, encoding: 'utf8' }).split('\0').filter(Boolean);
  const { commit, digestFile, ...repository } = await checkOut(files, DOCKER);
  const run = (...args: string[]) => repository.run(args, { ...environmentOf(engine), DOCKER: pathOf('docker') });
  expect(await run('pin')).toEqual({ code: 0, out: '', err: '' });
  expect(readFileSync(digestFile, 'utf8')).toBe(`@${digest}\n`);
  const tag = commit();

  await docker(['tag', 'debian:trixie', base]);
  cleanUp(() => docker(['tag', id, base]));
  expect((await run()).out).toBe(`animal-store-core:${tag}\nanimal-store-gateway:${tag}\n`);
  for (const image of [`animal-store-core:${tag}`, `animal-store-gateway:${tag}`]) {
    cleanUp(() => docker(['rmi', image]));
    expect((await layersOf(image)).slice(0, layers.length)).toEqual(layers);
    expect(await inspect('{{index .Config.Labels "org.opencontainers.image.revision"}}', image)).toBe(tag);
  }
});
