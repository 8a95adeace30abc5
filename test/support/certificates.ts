import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import tls from 'node:tls';
import { cleanUp } from './clean-up.ts';
import { temporaryFolder } from './stack.ts';

export interface Authority {
  /** The CA's own certificate. */
  readonly caFile: string;
  /** A server certificate and its key. */
  readonly certFile: string;
  readonly keyFile: string;
}

/**
 * Creates a certificate authority for one test, with one server certificate.
 * @param name the name to certify, by default this machine's loopback address
 * @param days the number of days for which the server certificate is valid
 */
export async function createAuthority(name = 'IP:127.0.0.1', days = 1): Promise<Authority> {
  const folder = await temporaryFolder();
  const [caFile, caKey] = [join(folder, 'ca.crt'), join(folder, 'ca.key')];
  const [certFile, keyFile] = [join(folder, 'server.crt'), join(folder, 'server.key')];
  const newKey = (key: string) => ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key];
  openssl('req', '-x509', ...newKey(caKey), '-out', caFile, '-days', '1', '-subj', '/CN=CA of a test');
  openssl(
    ...['req', '-x509', ...newKey(keyFile), '-out', certFile, '-days', String(days), '-subj', '/CN=server of a test'],
    ...['-CA', caFile, '-CAkey', caKey, '-addext', `subjectAltName=${name}`],
    ...['-addext', 'basicConstraints=critical,CA:FALSE'],
  );
  return { caFile, certFile, keyFile };
}

/** Makes this process trust the authority alone, until the end of the test. @returns the certificate and its key */
export function trusted({ caFile, certFile, keyFile }: Authority): { cert: string; key: string } {
  const [ca = '', cert = '', key = ''] = [caFile, certFile, keyFile].map((file) => readFileSync(file, 'utf8'));
  const before = tls.getCACertificates();
  tls.setDefaultCACertificates([ca]);
  cleanUp(() => tls.setDefaultCACertificates(before));
  return { cert, key };
}

/** Replaces the server certificate with one that is valid only between these days, counted from today. */
export function setPeriod({ certFile, keyFile }: Authority, from: number, until: number): void {
  const [request, settings, index] = [`${certFile}.request`, `${certFile}.cnf`, `${certFile}.index`];
  openssl('req', '-new', '-key', keyFile, '-subj', '/CN=server of a test', '-out', request);
  writeFileSync(index, '');
  const lines = [`database=${index}`, `new_certs_dir=${dirname(index)}`, 'rand_serial=yes', 'default_md=sha256'];
  writeFileSync(
    settings,
    ['[ca]', 'default_ca=d', '[d]', ...lines, 'policy=p', '[p]', 'commonName=supplied', ''].join('\n'),
  );
  const time = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  const period = ['-startdate', time(from), '-enddate', time(until)];
  openssl(
    'ca',
    '-batch',
    '-config',
    settings,
    '-selfsign',
    '-keyfile',
    keyFile,
    '-in',
    request,
    ...period,
    '-out',
    certFile,
  );
}

function openssl(...args: string[]): void {
  execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}
