import { readFile } from 'node:fs/promises';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';
import { expect, test } from 'vitest';
import { ROUTES } from '../../gateway/routes.ts';
import { createAuthority } from '../support/certificates.ts';
import { send } from '../support/http.ts';
import { type Stack, startStack, UNLIMITED } from '../support/stack.ts';

/** Clients reset connections at any moment. An unhandled error event would stop the process. */

const ROUNDS = 30;
const WEB_SOCKET = 'Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n';
const HANDSHAKE = `${WEB_SOCKET}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n`;

/** Streams after which the server closes the connection in different ways, or keeps it open. */
const streamsOf = (key: string): readonly string[] => {
  const head = `Host: a\r\nAuthorization: Bearer ${key}\r\n`;
  return [
    'CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    '\u0016\u0003\u0001',
    'GET /v1/pets HTTP/1.1\r\nHost: a',
    `GET /v1/pets HTTP/1.1\r\n${head}\r\n`.repeat(40),
    `GET /v1/pets HTTP/1.1\r\n${head}${HANDSHAKE}\r\n`,
    `GET /v1/store/orders HTTP/1.1\r\n${head}${HANDSHAKE}Content-Length: 5\r\n\r\nab`,
    `GET /v1/store/orders HTTP/1.1\r\n${head}${WEB_SOCKET}\r\n`,
    `POST /v1/pets HTTP/1.1\r\n${head}Content-Length: 100000\r\n\r\n${'x'.repeat(1_000)}`,
    `POST /v1/pets HTTP/1.1\r\n${head}Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{`,
    `GET /v1/pets HTTP/1.1\r\n${head}Content-Length: 5\r\nExpect: x\r\n\r\n`,
    `OPTIONS * HTTP/1.1\r\n${head}\r\n`,
  ];
};

/**
 * Sends each stream on new connections and resets them a little later.
 * @param speak wraps a connection in another protocol
 */
async function resetAll(streams: readonly string[], port: number, speak = (bare: net.Socket) => bare): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    for (const stream of streams) {
      const bare = net.connect(port, '127.0.0.1');
      const socket = speak(bare);
      for (const one of [bare, socket]) one.on('error', () => {});
      socket.write(stream, 'latin1', () => setTimeout(() => bare.resetAndDestroy(), Math.random() * 8));
    }
    await sleep(10);
  }
}

async function expectGoodHealth(stack: Stack, key: string, ca?: Buffer): Promise<void> {
  await sleep(500);
  const { status } = await send(`${stack.gateway}/v1/pets`, { key, ca });
  expect(status).toBe(200);
  expect(stack.log.filter(({ level }) => level >= 60)).toEqual([]);
}

const portOf = ({ gateway }: Stack): number => Number(new URL(gateway).port);

test('connections and WebSockets that are reset at any moment do no harm', async () => {
  const routes = ROUTES.map((route) => (route.path === '/v1/store/orders' ? { ...route, webSocket: true } : route));
  const stack = await startStack({}, {}, routes);
  const key = await stack.issueKey(UNLIMITED);
  await resetAll(streamsOf(key), portOf(stack));
  await expectGoodHealth(stack, key);
});

test('TLS connections that are reset at any moment, and plain bytes on the TLS port, do no harm', async () => {
  const { caFile, certFile, keyFile } = await createAuthority();
  const ca = await readFile(caFile);
  const stack = await startStack({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
  const key = await stack.issueKey(UNLIMITED);
  const port = portOf(stack);
  await resetAll(streamsOf(key), port);
  await resetAll(streamsOf(key).slice(0, 5), port, (socket) => tls.connect({ socket, ca, host: '127.0.0.1' }));
  await expectGoodHealth(stack, key, ca);
});
