import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { Logger } from '../shared/logger.ts';
import type { Certificate } from '../shared/server.ts';

/** The certificate that clients see, in two files, and what takes their place while it runs. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

/** Which of the two files is at fault. */
export class CertificateFault extends Error {
  readonly file: keyof CertificateFiles;

  constructor(file: keyof CertificateFiles, message: string, cause?: unknown) {
    super(message, { cause });
    this.file = file;
  }
}

/** All that is wrong with the two files; where both can be used alone, whether they can together. */
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

/** @throws {CertificateFault} when a file cannot be read or used, or the two do not belong together */
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
  return [key, usable('keyFile', 'must hold a private key in PEM, without a passphrase', () => secret(key))];
}

function read(files: CertificateFiles, file: keyof CertificateFiles): string {
  return usable(file, 'must be a file that can be read', () => readFileSync(files[file], 'utf8'));
}

function usable<T>(file: keyof CertificateFiles, message: string, make: () => T): T {
  try {
    return make();
  } catch (cause) {
    throw new CertificateFault(file, message, cause);
  }
}

const secret = (key: string): KeyObject => createPrivateKey({ key, format: 'pem' });

const LOOK_EVERY_MS = 1_000;

export interface CertificateWatch {
  readonly files: CertificateFiles;
  /** What is in use already. */
  readonly first: Certificate;
  readonly onRenewed: (certificate: Certificate) => void;
  readonly logger: Logger;
}

/**
 * Looks at the files once a second, and hands over what is new in them. By their content: Kubernetes renews mounted files by
 * turning a symbolic link, which neither fs.watch nor the time of a file's change tells of reliably. Files that are no good
 * are told in the log, once, and only when they are found so twice: of two files that are being written, one comes first.
 * @returns what ends the watch
 */
export function watchCertificate({ files, first, onRenewed, logger }: CertificateWatch): () => void {
  let inUse = first;
  let fault: string | undefined;
  let timesSeen = 0;

  function look(): void {
    try {
      const found = readCertificate(files);
      fault = undefined;
      if (found.cert === inUse.cert && found.key === inUse.key) return;
      inUse = found;
      onRenewed(found);
      logger.info({ validTo: new X509Certificate(found.cert).validTo }, 'the certificate was renewed');
    } catch (thrown) {
      tell(thrown as Error);
    }
  }

  function tell({ message }: Error): void {
    timesSeen = message === fault ? timesSeen + 1 : 1;
    fault = message;
    if (timesSeen === 2)
      logger.error({ reason: message }, 'the certificate files are no good; the last good ones stay');
  }

  const looking = setInterval(look, LOOK_EVERY_MS).unref();
  return () => clearInterval(looking);
}
