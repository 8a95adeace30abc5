import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Certificate } from '../shared/http/server.ts';
import { readSettingFile } from '../shared/process/env.ts';
import type { Logger } from '../shared/process/logger.ts';
import { every } from '../shared/process/repeat.ts';

/** The files of the server certificate, which can be replaced while the gateway runs. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

class CertificateFault extends Error {
  readonly file: keyof CertificateFiles;

  constructor(file: keyof CertificateFiles, message: string, cause?: unknown) {
    super(message, { cause });
    this.file = file;
  }
}

/** Returns the faults found in the two files. If each file is usable by itself, checks whether the two match. */
export function certificateFaults(files: CertificateFiles): CertificateFault[] {
  const ofEach = [() => readLeaf(files), () => readKey(files)].flatMap(faultOf);
  return ofEach.length > 0 ? ofEach : faultOf(() => readCertificate(files));
}

function faultOf(make: () => unknown): CertificateFault[] {
  try {
    make();
    return [];
  } catch (fault) {
    if (!(fault instanceof CertificateFault)) throw fault;
    return [fault];
  }
}

/** @throws {CertificateFault} if a file cannot be read or used, or the two do not match */
export function readCertificate(files: CertificateFiles): Certificate {
  const [cert, leaf] = readLeaf(files);
  const [key, privateKey] = readKey(files);
  if (!leaf.checkPrivateKey(privateKey)) throw new CertificateFault('keyFile', 'must be the key of the certificate');
  usable('certFile', 'must hold a certificate and key that TLS can use', () => createSecureContext({ cert, key }));
  return { cert, key };
}

function readLeaf(files: CertificateFiles): [cert: string, leaf: X509Certificate] {
  const cert = read(files, 'certFile');
  return [cert, usable('certFile', 'must hold certificates in PEM', () => new X509Certificate(cert))];
}

function readKey(files: CertificateFiles): [key: string, privateKey: KeyObject] {
  const key = read(files, 'keyFile');
  return [key, usable('keyFile', 'must hold a private key in PEM, without a passphrase', () => createPrivateKey(key))];
}

function read(files: CertificateFiles, file: keyof CertificateFiles): string {
  return usable(file, 'must be a file that can be read', () => readSettingFile(files[file]));
}

function usable<T>(file: keyof CertificateFiles, message: string, make: () => T): T {
  try {
    return make();
  } catch (cause) {
    throw new CertificateFault(file, message, cause);
  }
}

const LOOK_EVERY_MS = 1_000;
/** Files are rejected once this many checks in a row find the same fault. */
const REJECTED_AFTER = 2;

interface CertificateWatch {
  readonly files: CertificateFiles;
  readonly first: Certificate;
  readonly onRenewed: (certificate: Certificate) => void;
  readonly logger: Logger;
}

/** The watched files as a process that serves clients sees them. */
export interface CertificateState {
  /** When the certificate in use begins to be valid, and when it expires, in Unix seconds. */
  readonly beginsAt: number;
  readonly expiresAt: number;
  /** Why the files are bad, in which case the last good ones are in use; undefined if they are good. */
  readonly rejected: string | undefined;
}

export interface WatchedCertificate {
  state(): CertificateState;
  stop(): void;
}

/**
 * Checks the files once a second and reports new content. It compares content because Kubernetes renews mounted files
 * by changing a symbolic link, which fs.watch and modification times do not report reliably. Bad files are logged once,
 * and only if two checks in a row find them: a check can fall between the writes of the two files.
 */
export function watchCertificate({ files, first, onRenewed, logger }: CertificateWatch): WatchedCertificate {
  let inUse = first;
  let period = periodOf(first);
  let fault: string | undefined;
  let timesSeen = 0;

  function look(): void {
    try {
      const found = readCertificate(files);
      if (found.cert !== inUse.cert || found.key !== inUse.key) renew(found);
      fault = undefined;
      timesSeen = 0;
    } catch (thrown) {
      reject(thrown as CertificateFault);
    }
  }

  /** @throws {CertificateFault} for a certificate that is not valid now, as long as the one in use has not expired */
  function renew(found: Certificate): void {
    const [next, now] = [periodOf(found), Date.now() / 1_000];
    if ((now < next.beginsAt || next.expiresAt < now) && now < period.expiresAt)
      throw new CertificateFault('certFile', 'must hold a certificate that is valid now');
    inUse = found;
    period = next;
    onRenewed(found);
    logger.info({ validTo: new X509Certificate(found.cert).validTo }, 'the certificate was renewed');
  }

  function reject({ file, message }: CertificateFault): void {
    const found = `${files[file]} ${message}`;
    timesSeen = found === fault ? timesSeen + 1 : 1;
    fault = found;
    if (timesSeen === REJECTED_AFTER)
      logger.error(
        { file: files[file], reason: message },
        'the certificate files are invalid; the last good ones stay',
      );
  }

  const stop = every(LOOK_EVERY_MS, look);
  return {
    state: () => ({ ...period, rejected: timesSeen >= REJECTED_AFTER ? fault : undefined }),
    stop,
  };
}

function periodOf({ cert }: Certificate) {
  const { validFromDate, validToDate } = new X509Certificate(cert);
  return { beginsAt: validFromDate.getTime() / 1_000, expiresAt: validToDate.getTime() / 1_000 };
}
