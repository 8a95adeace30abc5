import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { copyFile, mkdir, readFile, rename, symlink } from 'node:fs/promises';
import https from 'node:https';
import net, { type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import { expect, test } from 'vitest';
import type { DoctorAnswer, TrafficAnswer } from '../../gateway/operators/api/answers.ts';
import { type Authority, createAuthority, setPeriod, trusted } from '../support/certificates.ts';
import { cleanUp } from '../support/clean-up.ts';
import { listeningCore, withIdOf } from '../support/faulty-core.ts';
import { send, sendBytes } from '../support/http.ts';
import { serveHttp } from '../support/http-server.ts';
import { get as read } from '../support/operators.ts';
import { connectRaw } from '../support/raw-client.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { stackBefore } from '../support/stack-before.ts';
import { fact, TIMED } from '../support/timed.ts';

const authority = await createAuthority();
const ca = await readFile(authority.caFile);
const settingsOf = ({ certFile, keyFile }: Authority) => ({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
const withTls = settingsOf(authority);

const portOf = (url: string): number => Number(new URL(url).port);

/** Returns a connection after its handshake, or the code of its error. */
async function handshake(url: string, options: ConnectionOptions = {}): Promise<TLSSocket | string> {
  const socket = tls.connect({ host: '127.0.0.1', port: portOf(url), ca, ...options });
  cleanUp(() => socket.destroy());
  const fault = once(socket, 'error').then(([{ code }]) => code as string);
  return await Promise.race([once(socket, 'secureConnect').then(() => socket), fault]);
}

const isRefused = async (url: string, options: ConnectionOptions): Promise<boolean> =>
  typeof (await handshake(url, options)) === 'string';

/** Opens a connection that sends nothing, not even the beginning of a handshake. */
const silent = (url: string, from: string) => connectRaw(url.replace('https:', 'http:'), { from });

const core = await listeningCore();
const { stack, get } = await stackBefore(core.url, withTls, {});

test('with a certificate, clients use TLS, and the core receives X-Forwarded-Proto: https', async () => {
  expect(stack.gateway).toMatch(/^https:/);
  const answer = await get('', { ca });
  expect([answer.status, answer.headers['x-ratelimit-remaining']]).toEqual([200, '59']);
  expect(core.heads[0]).toMatch(/\r\nX-Forwarded-Proto: https\r\n/);
});

test('only TLS 1.2 and 1.3 are accepted', async () => {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const socket = await handshake(stack.gateway, { minVersion: version, maxVersion: version });
    expect((socket as TLSSocket).getProtocol()).toBe(version);
  }
  // The client also accepts old ciphers, so only the version can be the reason for a refusal.
  const ciphers = 'DEFAULT@SECLEVEL=0';
  expect(await handshake(stack.gateway, { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers })).toBe(
    'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION',
  );
});

test('cipher suites have forward secrecy and authentication in both TLS versions', async () => {
  for (const ciphers of ['AES128-GCM-SHA256', 'ECDHE-RSA-AES128-SHA256', 'ECDHE-ECDSA-AES256-SHA384', 'AES256-SHA'])
    expect(await isRefused(stack.gateway, { maxVersion: 'TLSv1.2', ciphers: `${ciphers}:@SECLEVEL=0` })).toBe(true);
  const socket = (await handshake(stack.gateway, { maxVersion: 'TLSv1.2' })) as TLSSocket;
  expect(socket.getCipher().name).toMatch(/^ECDHE-(?:RSA|ECDSA)-(?:AES\d+-GCM|CHACHA20)/);
});

test('every response over TLS, and no other, has Strict-Transport-Security', async () => {
  const hsts = 'max-age=31536000';
  const answers = [
    await get('', { ca }),
    await send(`${stack.gateway}/v1/pets`, { ca }),
    await send(`${stack.gateway}/v1/openapi.json`, { ca }),
  ];
  expect(answers.map(({ headers }) => headers['strict-transport-security'])).toEqual([hsts, hsts, hsts]);
  expect(answers[0]?.headers['x-ratelimit-limit']).toBe('60');
  const plain = await startStack();
  expect((await send(`${plain.gateway}/v1/pets`)).headers).not.toHaveProperty('strict-transport-security');
});

test('ALPN selects HTTP/1.1, and a client that offers only other protocols is refused', async () => {
  const socket = await handshake(stack.gateway, { ALPNProtocols: ['h2', 'http/1.1'] });
  expect((socket as TLSSocket).alpnProtocol).toBe('http/1.1');
  expect(await isRefused(stack.gateway, { ALPNProtocols: ['h2'] })).toBe(true);
});

test('repeated headers from the core keep their spelling over TLS', async () => {
  const spelling = 'HTTP/1.1 200 OK\r\nx-oDD: 1\r\nX-Odd: 2\r\nContent-Length: 2\r\n\r\n[]';
  const { stack, key } = await stackBefore((socket, head) => void socket.write(withIdOf(head, spelling)), withTls, {});
  const { socket, received } = await connectRaw(stack.gateway, { ca });
  socket.end(`GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`);
  await once(socket, 'end');
  expect(received()).toMatch(/\r\nx-oDD: 1\r\nX-Odd: 2\r\n[\s\S]*\r\nStrict-Transport-Security: max-age=31536000\r\n/);
});

test('plain HTTP on the TLS port gets a clear error, and any other bytes close their connection', async () => {
  const plain = await sendBytes(stack.gateway, 'GET /v1/pets HTTP/1.1\r\nHost: a\r\n\r\n');
  expect(plain).toMatch(/^HTTP\/1.1 400 [\s\S]*X-RateLimit-Limit: 60\r\n[\s\S]*"message":"This port speaks TLS/);
  expect(await sendBytes(stack.gateway, Buffer.alloc(1_000, 7))).not.toMatch(/HTTP|RateLimit/);
  expect((await get('', { ca })).status).toBe(200);
  expect(stack.log.filter(({ level }) => level >= 50)).toEqual([]);
});

/** Creates two files behind a symbolic link, as Kubernetes mounts them. */
async function mounted(first: Authority): Promise<{ files: Authority; renew(to: Authority): Promise<void> }> {
  const folder = await temporaryFolder();
  let version = 0;
  async function renew({ certFile, keyFile }: Authority): Promise<void> {
    const to = join(folder, `version-${++version}`);
    await mkdir(to);
    await Promise.all([copyFile(certFile, join(to, 'tls.crt')), copyFile(keyFile, join(to, 'tls.key'))]);
    await symlink(to, join(folder, 'new'));
    await rename(join(folder, 'new'), join(folder, 'data'));
  }
  await renew(first);
  const files = { certFile: join(folder, 'data', 'tls.crt'), keyFile: join(folder, 'data', 'tls.key') };
  return { files: { ...first, ...files }, renew };
}

test('a renewed certificate is used for new connections, while open ones continue', async () => {
  const next = await createAuthority();
  const nextCa = await readFile(next.caFile);
  const { files, renew } = await mounted(authority);
  const stack = await startStack(settingsOf(files), { keepAliveMs: 20_000 });
  const key = await stack.issueKey();
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
  cleanUp(() => agent.destroy());
  const ask = async () => (await send(`${stack.gateway}/v1/pets`, { key, ca, agent })).status;
  expect(await ask()).toBe(200);
  const [open] = Object.values(agent.freeSockets).flat();

  await renew(next);
  await expect.poll(() => isRefused(stack.gateway, { ca: nextCa })).toBe(false);
  expect(await isRefused(stack.gateway, { ca })).toBe(true);
  expect(await ask()).toBe(200);
  expect(Object.values(agent.freeSockets).flat()).toEqual([open]);
  expect(await isRefused(stack.gateway, { ca: nextCa, maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' })).toBe(
    true,
  );
});

const aboutCertificate = async (stack: Stack) =>
  (await read<DoctorAnswer>(stack, '/doctor')).findings.filter(({ about }) => about === 'certificate');

test('invalid new files are logged once as an error and reported by the doctor, and the last valid ones stay in use', async () => {
  const next = await createAuthority();
  const { files, renew } = await mounted(authority);
  const stack = await startStack(settingsOf(files));
  const alarms = () => stack.log.filter(({ level }) => level === 50);

  await renew({ ...next, keyFile: authority.keyFile });
  await expect
    .poll(alarms)
    .toEqual([expect.objectContaining({ file: files.keyFile, reason: 'must be the key of the certificate' })]);
  expect(await isRefused(stack.gateway, { ca })).toBe(false);
  const found = `${files.keyFile} must be the key of the certificate; the last good files stay in use`;
  const advice = expect.stringContaining('A gateway that starts now exits with this error, or uses');
  const rejected = expect.objectContaining({ about: 'certificate', status: 'fault', found, advice });
  expect(await aboutCertificate(stack)).toEqual([rejected, expect.objectContaining({ status: 'warning' })]);
  expect((await read<TrafficAnswer>(stack, '/traffic')).findings).toContainEqual(rejected);
  await sleep(2_200);
  await renew(next);
  const nextCa = await readFile(next.caFile);
  await expect.poll(() => isRefused(stack.gateway, { ca: nextCa })).toBe(false);
  expect(alarms()).toHaveLength(1);
  expect(await aboutCertificate(stack)).toEqual([expect.objectContaining({ status: 'warning' })]);
});

test.for([
  ['expires in 15 days', [0, 15], 'good', 'expires on'],
  ['expires in 13 days', [0, 13], 'warning', 'expires on'],
  ['expired yesterday', [-2, -1], 'fault', 'expired on'],
  ['is valid from tomorrow on', [1, 30], 'fault', 'is not valid before'],
] as const)('the doctor reports a certificate that %s', async ([, [from, until], status, what]) => {
  const files = await createAuthority();
  setPeriod(files, from, until);
  const { validFromDate, validToDate } = new X509Certificate(await readFile(files.certFile));
  const found = `${what} ${(from > 0 ? validFromDate : validToDate).toISOString()}`;
  expect(await aboutCertificate(await startStack(settingsOf(files)))).toMatchObject([{ status, found }]);
});

test('without TLS, the doctor has nothing to report about a certificate', async () => {
  expect(await aboutCertificate(await startStack())).toEqual([]);
});

test.for([
  ['expired', -2, -1],
  ['not yet valid', 1, 30],
] as const)('a certificate that is %s does not replace one that is valid', async ([, from, until]) => {
  const other = await createAuthority();
  setPeriod(other, from, until);
  const { files, renew } = await mounted(authority);
  const stack = await startStack(settingsOf(files));
  await renew(other);
  await expect
    .poll(() => stack.log.filter(({ level }) => level === 50))
    .toEqual([expect.objectContaining({ file: files.certFile, reason: 'must hold a certificate that is valid now' })]);
  expect(await isRefused(stack.gateway, { ca })).toBe(false);
});

test('an unfinished handshake times out, and counts as a connection until then', TIMED, async () => {
  const stack = await startStack(withTls, { headersMs: 1_500, connectionsPerAddress: 2 });
  const held = [await silent(stack.gateway, '127.0.0.2'), await silent(stack.gateway, '127.0.0.2')];
  const over = await silent(stack.gateway, '127.0.0.2');
  const overAt = await over.closed.then(() => performance.now());
  const heldAt = await Promise.race(held.map(({ closed }) => closed)).then(() => performance.now());
  await Promise.all(held.map(({ closed }) => closed));
  const { status } = await send(`${stack.gateway}/v1/pets`, { ca, from: '127.0.0.2' });
  await fact(() => expect(status).toBe(401));
  expect(heldAt - overAt).toBeGreaterThan(500);
});

/** The first bytes that a TLS client sends. */
async function clientHello(): Promise<Buffer> {
  const server = net.createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  cleanUp(() => server.close());
  const client = tls.connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port }).on('error', () => {});
  const [socket] = (await once(server, 'connection')) as [net.Socket];
  const [hello] = (await once(socket, 'data')) as [Buffer];
  client.destroy();
  return hello;
}

test('a connection whose client ends its side before or during the handshake is closed at once', TIMED, async () => {
  const hello = await clientHello();
  const before = performance.now();
  for (const bytes of [hello.subarray(0, 0), hello.subarray(0, 9), hello]) {
    const { socket, closed } = await silent(stack.gateway, '127.0.0.2');
    socket.end(bytes);
    await closed;
  }
  expect(performance.now() - before).toBeLessThan(3_000);
});

test('a stopping gateway does not wait for TLS handshakes', TIMED, async () => {
  const stack = await startStack(withTls);
  const { closed } = await silent(stack.gateway, '127.0.0.1');
  const before = performance.now();
  await Promise.all([stack.stop(), closed]);
  expect(performance.now() - before).toBeLessThan(3_000);
});

test('a request, even a write, goes to another core if the TLS handshake with the first one fails', async () => {
  const options = trusted(await createAuthority());
  const cores = await Promise.all(
    Array.from({ length: 2 }, async () => {
      const server = https.createServer(options, (request, response) => {
        response.writeHead(request.method === 'POST' ? 201 : 200, [
          'X-Request-Id',
          `${request.headers['x-request-id']}`,
        ]);
        response.end('{}');
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      cleanUp(() => server.close().closeAllConnections());
      return { server, url: `https://127.0.0.1:${(server.address() as AddressInfo).port}` };
    }),
  );
  const { get: list, post: add } = await stackBefore(cores.map(({ url }) => url).join());
  for (let count = 0; count < 4; count++) expect([(await list()).status, (await add()).status]).toEqual([200, 201]);
  const other = await createAuthority();
  const [cert, key] = await Promise.all([readFile(other.certFile), readFile(other.keyFile)]);
  cores[0]?.server.setSecureContext({ cert, key });
  cores[0]?.server.closeAllConnections();
  // The probes have not yet noticed the wrong certificate.
  const answers = await Promise.all([1, 2, 3, 4].flatMap(() => [list(), add()]));
  expect(answers.map(({ status }) => status)).toEqual([1, 2, 3, 4].flatMap(() => [200, 201]));
});

test('the reason is clear if CORE_URL begins with https, but the core does not speak TLS', async () => {
  const core = await serveHttp((_request, response) => void response.end('[]'));
  const { stack, get: list } = await stackBefore(core.replace('http:', 'https:'));
  expect((await list()).status).toBe(502);
  const reason = 'The core does not speak TLS.';
  await expect.poll(() => stack.log.find(({ status }) => status === 502)).toMatchObject({ reason });
  const { findings } = (await stack.admin('GET', '/doctor')).json as { findings: unknown[] };
  expect(findings).toContainEqual(expect.objectContaining({ found: `cannot be reached: ${reason}` }));
});
