import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { createAuthority } from '../support/certificates.ts';
import { listeningCore } from '../support/faulty-core.ts';
import { send } from '../support/http.ts';
import { get } from '../support/operators.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { temporaryFolder } from '../support/stack.ts';
import { eventually, launchWorkers, replaced } from '../support/workers.ts';

test('a worker that starts while settings files are invalid uses their last valid contents', async () => {
  const [authority, folder, core] = [await createAuthority(), await temporaryFolder(), await listeningCore()];
  const file = (name: string) => join(folder, name);
  await writeFile(file('token'), 'the-first-token-of-the-core\n');
  await writeFile(file('redis'), (await emptyDatabase()).url);
  await writeFile(file('tls.crt'), await readFile(authority.certFile));
  const workers = await launchWorkers({
    WORKERS: '1',
    CORE_URL: core.url,
    CORE_TOKEN_FILE: file('token'),
    REDIS_URL: '',
    REDIS_URL_FILE: file('redis'),
    TLS_CERT_FILE: file('tls.crt'),
    TLS_KEY_FILE: authority.keyFile,
  });
  const [key, ca] = [await workers.issueKey(), await readFile(authority.caFile)];
  const status = () =>
    send(`${workers.gateway}/v1/pets`, { key, ca }).then(
      (answer) => answer.status,
      () => 0,
    );
  const lastToken = () => /^authorization: bearer (\S+)/im.exec(core.heads.at(-1) ?? '')?.[1];
  expect([await status(), lastToken()]).toEqual([200, 'the-first-token-of-the-core']);

  const second = 'the-second-token-of-the-core';
  await writeFile(file('token'), second);
  await eventually(async () => [await status(), lastToken()]).toEqual([200, second]);
  // The primary checks the files once a second.
  await sleep(1_500);
  await writeFile(file('token'), '');
  await rm(file('redis'));
  await writeFile(file('tls.crt'), 'garbage');
  const found = `${file('tls.crt')} must hold certificates in PEM; the last good files stay in use`;
  const findings = async () => (await get<DoctorAnswer>({ admin: workers.change }, '/doctor')).findings;
  await eventually(findings).toContainEqual(expect.objectContaining({ about: 'certificate', status: 'fault', found }));
  await replaced(workers, (pid) => process.kill(pid, 'SIGKILL'));
  expect([await status(), lastToken()]).toEqual([200, second]);

  await replaced(workers, () => workers.child.kill('SIGHUP'));
  await eventually(async () => [await status(), lastToken()]).toEqual([200, second]);
});
