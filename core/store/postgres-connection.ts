import net from 'node:net';
import pg from 'pg';
import type { DatabaseUrl } from './database-url.ts';
import { isPasswordRefused, PostgresSilent } from './postgres-faults.ts';

const CONNECT_TIMEOUT_MS = 1_000;
/**
 * Together with the wait for a connection, this is less than the 5 s that a gateway waits, so that its client gets the
 * core's 503.
 */
const STATEMENT_TIMEOUT_MS = 3_500;
/** Applies if PostgreSQL itself is too slow to end a statement. */
const QUERY_TIMEOUT_MS = 3_800;

/** Reads int8 and count() as bigint, and everything else as pg does. */
const types = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    oid === pg.types.builtins.INT8 ? BigInt : pg.types.getTypeParser(oid, format as 'text'),
} as pg.CustomTypesConfig;

export const CONNECTION_OPTIONS = {
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  statement_timeout: STATEMENT_TIMEOUT_MS,
  query_timeout: QUERY_TIMEOUT_MS,
  types,
} satisfies pg.ClientConfig;

/** The class of connections that read the present URL when they connect. */
export const connectionsTo = (url: DatabaseUrl) =>
  class extends pg.Client {
    readonly #url: string;
    readonly #wasAccepted: () => boolean;

    constructor(options: pg.ClientConfig = {}) {
      const socket = new net.Socket();
      let wasAccepted = false;
      socket.once('connect', () => {
        wasAccepted = true;
      });
      const connectionString = url.forNewConnection();
      super({ ...options, connectionString, stream: () => socket });
      this.#url = connectionString;
      this.#wasAccepted = () => wasAccepted;
    }

    override connect(): Promise<this>;
    override connect(done: (fault: Error | undefined) => void): void;
    override connect(done?: (fault: Error | undefined) => void): Promise<this> | undefined {
      const connected = this.#connect();
      if (done === undefined) return connected;
      void connected.then(() => done(undefined), done);
      return undefined;
    }

    async #connect(): Promise<this> {
      try {
        await super.connect();
        url.accepted(this.#url);
        return this;
      } catch (fault) {
        if (isPasswordRefused(fault)) url.refused(this.#url);
        throw this.#wasAccepted() && (fault as Error).message === 'timeout expired' ? new PostgresSilent() : fault;
      }
    }
  };
