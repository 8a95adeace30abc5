import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, startProcess } from './process.ts';
import { temporaryFolder } from './stack.ts';

/**
 * Copies files of the project into a new repository, in which deploy/images.sh runs.
 * @param docker the shell script that runs in place of docker
 */
export async function checkOut(files: readonly string[], docker: string) {
  const folder = await temporaryFolder();
  const [project, programs] = [join(folder, 'project'), join(folder, 'bin')];
  for (const one of [project, programs]) mkdirSync(one);
  for (const file of files) cpSync(join(ROOT, file), join(project, file), { verbatimSymlinks: true });
  writeFileSync(join(programs, 'docker'), docker, { mode: 0o755 });
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=test', '-c', 'user.email=test@test', ...args], { cwd: project })
      .toString()
      .trim();
  git('init', '--quiet');
  return {
    digestFile: join(project, 'deploy/node.digest'),
    /** Commits all changes. @returns the tag of images of this commit */
    commit() {
      git('add', '--all');
      git('commit', '--quiet', '--message', 'test');
      return git('rev-parse', 'HEAD').slice(0, 12);
    },
    run: (args: readonly string[] = [], env: NodeJS.ProcessEnv = {}) =>
      startProcess('sh', [join(project, 'deploy/images.sh'), ...args], {
        ...env,
        PATH: `${programs}:${process.env.PATH}`,
      }).ended,
  };
}
