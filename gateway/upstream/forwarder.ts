import type { ServerResponse } from 'node:http';
import type { Family } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { Calls } from './calls.ts';
import { familiesOf } from './core-counts.ts';
import { CoreNames } from './core-names.ts';
import type { CoreState } from './core-state.ts';
import type { CoreAddress } from './core-url.ts';
import { Cores } from './cores.ts';
import { upstreamFault } from './faults.ts';
import type { UpstreamRequest } from './request-head.ts';

export interface Forwarder {
  /**
   * Forwards a request to a core and its answer to the client. Ends when the answer has been handed over.
   * @param extraHeaders flat list, sent after the core's own headers
   * @throws {HttpError} 502, 503 or 504 if nothing has been sent; otherwise the client's connection is closed
   */
  forward(request: UpstreamRequest, response: ServerResponse, extraHeaders: readonly string[]): Promise<void>;
  /** The next core in turn, for requests that reach it another way. */
  nextCore(): CoreAddress;
  /** The present limit of concurrent requests for all cores. */
  readonly limit: number;
  states(): CoreState[];
  /** Cores that have left and still have to answer. */
  draining(): CoreState[];
  /** How many names of cores cannot be resolved at present. */
  namesLost(): number;
  counted(): Family[];
  close(): void;
}

/**
 * Forwards to one core, or to several in turn. Small answers are taken whole, large ones are streamed. Reads are
 * pipelined where they are likely to be answered first, and sent at most twice. Writes have their own connection and are
 * sent once; another core gets them only if they certainly never arrived.
 * @param urls entries of CORE_URL
 * @returns once their names have been resolved, or took too long
 */
export async function createForwarder(urls: readonly string[], timeoutMs: number, logger: Logger): Promise<Forwarder> {
  const cores = new Cores(timeoutMs);
  const names = new CoreNames(urls, logger, (addresses) => cores.set(addresses));
  await names.start();
  const calls = new Calls(cores, timeoutMs);

  return {
    async forward(request, response, extraHeaders) {
      const askedAt = performance.now();
      const forwarding = { request, response, extraHeaders, askedAt, deadline: askedAt + timeoutMs };
      try {
        await calls.forward(forwarding);
      } catch (fault) {
        throw upstreamFault(fault);
      }
    },
    nextCore: () => cores.next().address,
    get limit() {
      return cores.limit;
    },
    states: () => cores.states(),
    draining: () => cores.draining(),
    namesLost: () => names.lost,
    counted: () => familiesOf(cores.counts()),
    close() {
      names.close();
      cores.close();
    },
  };
}
