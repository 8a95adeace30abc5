import { execFileSync } from 'node:child_process';
import { chmod, cp, mkdir, readFile } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { cleanUp } from './clean-up.ts';
import { type Instruction, type Stage, stageOf } from './dockerfile.ts';
import { ROOT } from './process.ts';
import { temporaryFolder } from './stack.ts';

/** Builds deploy/Dockerfile in a folder, instruction by instruction, without a container engine. */

/** Each folder stands for an image's root. */
export type Folders = ReadonlyMap<string, string>;

/** Builds the stages in order, each in its own folder that anyone can read and nobody can write. */
export async function replay(stages: readonly Stage[]): Promise<Folders> {
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
  else link(base, folder);
  let workingFolder = base === undefined ? folder : join(folder, 'app');
  for (const instruction of instructions) {
    if (instruction.name === 'WORKDIR') workingFolder = join(folder, instruction.text);
    await mkdir(workingFolder, { recursive: true });
    if (instruction.name === 'COPY') await copy(instruction, workingFolder, folders);
    if (instruction.name === 'RUN') run(instruction.text, workingFolder);
  }
}

/** Files never change after they are created, so stages can share them by hard links. */
const link = (source: string, target: string) => execFileSync('cp', ['-al', source, target]);

/** COPY: the content of a folder goes into the target. A file goes into it if the target ends with a slash. */
async function copy({ text, flags }: Instruction, workingFolder: string, folders: Folders): Promise<void> {
  const paths = text.split(' ');
  const target = resolve(workingFolder, paths.at(-1) ?? '');
  for (const path of paths.slice(0, -1)) {
    const source = flags.from === undefined ? await contextPath(path) : join(folders.get(flags.from) ?? '', path);
    const place = paths.at(-1)?.endsWith('/') ? join(target, basename(path)) : target;
    await mkdir(dirname(place), { recursive: true });
    if (flags.from === undefined) await cp(source, place, { recursive: true, verbatimSymlinks: true });
    else link(source, place);
  }
}

/** @throws {Error} when .dockerignore excludes it */
async function contextPath(path: string): Promise<string> {
  const source = join(ROOT, path);
  if (!(await sentToBuilder()).includes(relative(ROOT, source))) throw new Error(`.dockerignore keeps ${path} out.`);
  return source;
}

/** The files that .dockerignore lets through. Its first line excludes everything, the others list what to include. */
export async function sentToBuilder(): Promise<string[]> {
  const lines = (await readFile(join(ROOT, '.dockerignore'), 'utf8')).trim().split('\n');
  const [first, ...rest] = lines.filter((line) => !line.startsWith('#'));
  if (first !== '*' || rest.some((line) => !/^![\w./-]+$/.test(line)))
    throw new Error('.dockerignore is no list of what is let through.');
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
