import { once } from 'node:events';
import { openSync } from 'node:fs';
import { copyFile, writeFile } from 'node:fs/promises';
import net, { type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coresOn } from './addressed-cores.ts';
import { type Authority, createAuthority } from './certificates.ts';
import { cleanUp } from './clean-up.ts';
import { startDnsServer } from './dns-server.ts';
import { floodWithoutKey } from './keyless-flood.ts';
import { alertsOf, issue, type Patient, persist, repeatedly } from './patient.ts';
import { freePort } from './port.ts';
import { startProcess } from './process.ts';
import { ADMIN_TOKEN, startStack, temporaryFolder } from './stack.ts';
import { WEBHOOK_SECRET } from './webhook-receiver.ts';

/** Gateways whose files, DNS names, webhook receivers, connections or file descriptors fail. */

/** A gateway whose certificate is about to expire, and whose new certificate is then truncated. */
export async function gatewayWithCertificate(): Promise<Patient> {
  const folder = await temporaryFolder();
  const files = { certFile: join(folder, 'tls.crt'), keyFile: join(folder, 'tls.key') };
  const [long, short] = [await createAuthority(undefined, 365), await createAuthority(undefined, 7)];
  const install = async ({ certFile, keyFile }: Authority) => {
    await copyFile(keyFile, files.keyFile);
    await copyFile(certFile, files.certFile);
  };
  await install(long);
  const { adminUrl } = await startStack({ TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile });
  return {
    gateways: [adminUrl],
    faults: [
      {
        alerts: alertsOf(adminUrl, 'GatewayCertificateExpires'),
        cause: () => install(short),
        heal: () => install(long),
      },
      {
        alerts: alertsOf(adminUrl, 'GatewayCertificateRejected'),
        cause: () => writeFile(files.certFile, '-----BEGIN CERTIFICATE-----'),
        heal: () => install(long),
      },
    ],
  };
}

/** A gateway whose CORE_URL has a name that is removed from DNS. */
export async function gatewayWithCoreName(): Promise<Patient> {
  const dns = await startDnsServer();
  const name = '_core._tcp.alerts.test';
  const { port } = await coresOn(['127.0.0.1']);
  const records = [{ target: '127.0.0.1', port }];
  dns.set(name, records);
  const { adminUrl } = await startStack({ CORE_URL: `http+srv://${name}` });
  return {
    gateways: [adminUrl],
    faults: [
      {
        alerts: alertsOf(adminUrl, 'GatewayCoreNameLost'),
        cause: () => dns.set(name, []),
        heal: () => dns.set(name, records),
      },
    ],
  };
}

/** A gateway with an unreachable webhook receiver, and more events than its queue holds. */
export async function gatewayWithWebhooks(): Promise<Patient> {
  const receiver = `http://127.0.0.1:${await freePort()}`;
  const stack = await startStack({ WEBHOOK_URL: receiver, WEBHOOK_SECRET });
  const keys: string[] = [];
  while (keys.length < 600) keys.push(...(await issue(stack, 30, { day: 1 })));
  return {
    gateways: [stack.adminUrl],
    faults: [
      { alerts: alertsOf(stack.adminUrl, 'GatewayWebhooksLost'), cause: () => persist(stack.gateway, keys, 10) },
    ],
  };
}

/** A gateway at its limit of connections. */
export async function gatewayWithFewConnections(): Promise<Patient> {
  const stack = await startStack({}, { connections: 3 });
  const sockets = new Set<Socket>();
  const connect = () => {
    const socket = net.connect(Number(new URL(stack.gateway).port), '127.0.0.1').on('error', () => {});
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  };
  const release = () => {
    for (const socket of sockets) socket.destroy();
  };
  cleanUp(release);
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: alertsOf(stack.adminUrl, 'GatewayConnectionsFull'),
        cause() {
          const end = repeatedly(connect, 50);
          return () => {
            end();
            release();
          };
        },
      },
    ],
  };
}

/** A gateway that has few file descriptors and logs to a full disk. */
export async function gatewayOnFullMachine(): Promise<Patient> {
  const environment = { PORT: '0', ADMIN_PORT: '0', ADMIN_TOKEN, DATA_DIR: await temporaryFolder() };
  const command = ['--nofile=80', process.execPath, 'gateway/main.ts'];
  const { child } = startProcess('prlimit', command, environment, {
    stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe', 'ipc'],
  });
  const [{ gateway, admin }] = (await once(child, 'message')) as [{ gateway: string; admin: string }];
  return {
    gateways: [admin],
    faults: [
      {
        alerts: alertsOf(admin, 'LogLinesDropped'),
        /** Fills the buffer of lines that wait for the disk. Each further line is lost. */
        async cause() {
          await floodWithoutKey(gateway, 6_000);
          return persist(gateway, ['as_unknown'], 100);
        },
      },
      {
        alerts: alertsOf(admin, 'GatewayDescriptorsExhausted'),
        async cause() {
          const port = Number(new URL(gateway).port);
          const sockets = Array.from({ length: 150 }, () => net.connect(port, '127.0.0.1').on('error', () => {}));
          // Holds the descriptors for a while, then frees them, because the counter cannot be scraped before that.
          await sleep(1_500);
          for (const socket of sockets) socket.destroy();
        },
      },
    ],
  };
}
