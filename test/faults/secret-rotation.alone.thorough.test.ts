import { readFile, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect, test } from 'vitest';
import { createAuthority } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import type { EverydayLoad } from '../support/load.ts';
import { startPostgres } from '../support/postgres.ts';
import {
  elsewhere,
  expectNoFailure,
  linesOf,
  NEW,
  OLD,
  secretFile,
  serves,
  startLoad,
  valuesOf,
  WITHIN,
} from '../support/rotation.ts';
import { type Stack, startStack, temporaryFolder, UNLIMITED } from '../support/stack.ts';

/** Rotates secrets with the commands from deploy/RUNBOOK.md while clients read and write. */

test('CORE_TOKEN is rotated without a failed request', async () => {
  const CORE_TOKEN_FILE = await secretFile(OLD);
  const stack = await startStack({ CORE_TOKEN_FILE });
  const load = await startLoad(stack);
  const changed = (log: Stack['log']) => log.filter(({ msg }) => msg === 'the setting was changed').length;
  const values = valuesOf('CORE_TOKEN');
  expect(values.at(-1)).toBe(NEW);
  for (const [step, value] of values.entries()) {
    await serves(load);
    await writeFile(CORE_TOKEN_FILE, value);
    await expect.poll(() => [changed(stack.log), changed(stack.coreLog)], WITHIN).toEqual([step + 1, step + 1]);
  }
  await expectNoFailure(load);
  const direct = [OLD, NEW].map(async (key) => (await send(`${stack.core}/v1/pets`, { key })).status);
  expect(await Promise.all(direct)).toEqual([401, 200]);
});

/** Starts a PostgreSQL that requires a password for the core's role, and connects to it as an administrator. */
async function startWithPassword() {
  const postgres = await startPostgres();
  cleanUp(postgres.stop);
  const root = new pg.Client(postgres.url);
  await root.connect();
  root.on('error', () => {});
  await root.query(`CREATE ROLE store LOGIN PASSWORD '${OLD}'`);
  await root.query('CREATE DATABASE store OWNER store');
  const { rows } = await root.query<{ hba_file: string }>('SHOW hba_file');
  const path = rows[0]?.hba_file ?? '';
  await writeFile(path, `host all store 127.0.0.1/32 scram-sha-256\n${await readFile(path, 'utf8')}`);
  await root.query('SELECT pg_reload_conf()');
  return { root, host: `127.0.0.1:${new URL(postgres.url).port}` };
}

test('the PostgreSQL password is rotated without a failed request', async () => {
  const { root, host } = await startWithPassword();
  const page = 'PostgreSQL password';
  const [written = ''] = valuesOf(page);
  const DATABASE_URL_FILE = await secretFile(elsewhere(written.replace(NEW, OLD), host));
  const stack = await startStack({ DATABASE_URL: '', DATABASE_URL_FILE });
  const loads = [await startLoad(stack, 1)];
  await serves(loads[0] as EverydayLoad);
  const backends = async () => {
    const { rows } = await root.query<{ pid: number }>("SELECT pid FROM pg_stat_activity WHERE usename = 'store'");
    return rows.map(({ pid }) => pid);
  };
  /** Adds clients that send requests without a pause, until the core has opened connections for them. */
  const grow = async (clients: number) => {
    const before = await backends();
    loads.push(await startLoad(stack, clients, 0));
    await expect.poll(async () => (await backends()).length, WITHIN).toBeGreaterThan(before.length);
  };

  await writeFile(DATABASE_URL_FILE, elsewhere(written, host));
  await grow(3); // Only the old password is accepted.
  for (const line of linesOf(page, 'psql -c')) await root.query(line.replaceAll('"', ''));
  await grow(12); // Only the new password is accepted.
  for (const load of loads) await expectNoFailure(load);

  await root.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'store'");
  await expect.poll(async () => (await send(`${stack.core}/v1/pets`)).status, WITHIN).toBe(200);
  expect((await send(`${stack.core}/readyz`)).status).toBe(200);
  await root.end();
});

test('connections that still use the old PostgreSQL password are opened again with the new one', async () => {
  const { root, host } = await startWithPassword();
  const [written = ''] = valuesOf('PostgreSQL password');
  // Replies to connections with the old password are slow, so several are under way when the first is refused.
  const slow = await startFaultProxy(`postgres://${host}`);
  const DATABASE_URL_FILE = await secretFile(elsewhere(written.replace(NEW, OLD), new URL(slow.url).host));
  const stack = await startStack({ DATABASE_URL: '', DATABASE_URL_FILE });
  const pets = async () => (await send(`${stack.core}/v1/pets`)).status;
  expect(await pets()).toBe(200);
  await writeFile(DATABASE_URL_FILE, elsewhere(written, host));
  const endConnections = () =>
    root.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'store'");
  await endConnections();
  await expect.poll(pets, WITHIN).toBe(200); // The new password was refused, so the old one is used.
  await root.query(`ALTER ROLE store PASSWORD '${NEW}'`);
  await endConnections();
  await expect.poll(() => slow.connections).toBe(0);
  slow.set({ kind: 'delay', ms: 100 });
  const statuses = await Promise.all(Array.from({ length: 8 }, (_, at) => sleep(at * 25).then(pets)));
  expect(statuses).toEqual(statuses.map(() => 200));
  await root.end();
});

test('the TLS certificate and its key are rotated without a failed request', async () => {
  const [first, next] = [await createAuthority(), await createAuthority()];
  const folder = await temporaryFolder();
  const files = { TLS_CERT_FILE: join(folder, 'tls.crt'), TLS_KEY_FILE: join(folder, 'tls.key') };
  const install = async ({ certFile, keyFile }: typeof first) => {
    await writeFile(files.TLS_CERT_FILE, await readFile(certFile));
    await writeFile(files.TLS_KEY_FILE, await readFile(keyFile));
  };
  await install(first);
  const stack = await startStack(files);
  const key = await stack.issueKey(UNLIMITED);
  const ca = Buffer.concat([await readFile(first.caFile), await readFile(next.caFile)]);
  const agent = new https.Agent({ keepAlive: true });
  cleanUp(() => agent.destroy());
  const outcomes = new Map<unknown, number>();
  let isRunning = true;
  /** Sends requests on new connections, or on those of an agent. */
  const client = async (sent: { agent?: https.Agent }) => {
    while (isRunning) {
      const outcome = await send(`${stack.gateway}/v1/pets`, { key, ca, ...sent }).then(
        ({ status }) => status,
        ({ code }) => code,
      );
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      await sleep(5);
    }
  };
  const clients = [client({}), client({}), client({ agent }), client({ agent })];
  const renewals = () => stack.log.filter(({ msg }) => msg === 'the certificate was renewed').length;
  for (const [index, authority] of [next, first, next].entries()) {
    await install(authority);
    await expect.poll(renewals, WITHIN).toBe(index + 1);
  }
  const onlyNext = await readFile(next.caFile);
  expect((await send(`${stack.gateway}/v1/pets`, { key, ca: onlyNext })).status).toBe(200);
  isRunning = false;
  await Promise.all(clients);
  expect([...outcomes.keys()]).toEqual([200]);
});
