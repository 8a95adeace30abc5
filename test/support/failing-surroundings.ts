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
import { issue, type Patient, persist } from './patient.ts';
import { freePort } from './port.ts';
import { startProcess } from './process.ts';
import { hostOf } from './prometheus.ts';
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
  const stack = await startStack({ TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile });
  const instance = hostOf(stack.adminUrl);
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayCertificateExpires', instance }],
        cause: () => install(short),
        heal: () => install(long),
      },
      {
        alerts: [{ alertname: 'GatewayCertificateRejected', instance }],
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
  const stack = await startStack({ CORE_URL: `http+srv://${name}` });
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayCoreNameLost', instance: hostOf(stack.adminUrl) }],
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
  let end = () => {};
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayWebhooksLost', instance: hostOf(stack.adminUrl) }],
        cause() {
          end = persist(stack.gateway, keys, 10);
        },
        heal: () => end(),
      },
    ],
  };
}

/** A gateway all of whose permitted connections are in use. */
export async function gatewayWithFewConnections(): Promise<Patient> {
  const stack = await startStack({}, { connections: 3 });
  const sockets = new Set<Socket>();
  const connect = () => {
    const socket = net.connect(Number(new URL(stack.gateway).port), '127.0.0.1').on('error', () => {});
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  };
  let connecting: NodeJS.Timeout | undefined;
  const release = () => {
    clearInterval(connecting);
    for (const socket of sockets) socket.destroy();
  };
  cleanUp(release);
  return {
    gateways: [stack.adminUrl],
    faults: [
      {
        alerts: [{ alertname: 'GatewayConnectionsFull', instance: hostOf(stack.adminUrl) }],
        cause() {
          connecting = setInterval(connect, 50);
        },
        heal: release,
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
  const instance = hostOf(admin);
  let end = () => {};
  return {
    gateways: [admin],
    faults: [
      {
        alerts: [{ alertname: 'LogLinesDropped', instance }],
        /** Fills the buffer of lines that wait for the disk. Each line after that is lost. */
        async cause() {
          await floodWithoutKey(gateway, 6_000);
          end = persist(gateway, ['as_unknown'], 100);
        },
        heal: () => end(),
      },
      {
        alerts: [{ alertname: 'GatewayDescriptorsExhausted', instance }],
        async cause() {
          const port = Number(new URL(gateway).port);
          const sockets = Array.from({ length: 150 }, () => net.connect(port, '127.0.0.1').on('error', () => {}));
          // The counter can be scraped once descriptors are free again.
          await sleep(1_500);
          for (const socket of sockets) socket.destroy();
        },
        heal() {},
      },
    ],
  };
}
