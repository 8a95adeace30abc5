/** What a server allows those who connect to it. Times in milliseconds. */
export interface ServerLimits {
  /** For the head of a request to arrive; also for a connection to bring its first. */
  readonly headersMs: number;
  /** For a whole request to arrive. */
  readonly requestMs: number;
  /** For an answer to be taken, from when it first had to wait for its reader. */
  readonly answerMs: number;
  /** Between an answer and the next request. */
  readonly keepAliveMs: number;
  /** For nothing to move in either direction. Above requestMs, which has an answer to give. */
  readonly silenceMs: number;
  /** For nothing to come from either side of a WebSocket; most clients and servers ping twice a minute. */
  readonly webSocketIdleMs: number;
  /** How often all of these are looked at. */
  readonly checkEveryMs: number;
  /** Of all answers together that wait in this process for their readers; past it the connections with the most are cut. */
  readonly unreadBytes: number;
  /** Pipelined requests that may be unanswered on a connection before the next one is read. */
  readonly unanswered: number;
  readonly connections: number;
  readonly connectionsPerAddress: number;
}

/**
 * What every HTTP server of ours allows. Node's own defaults leave a slow client minutes (headersTimeout 60 s, checked
 * every 30 s), never drop one that does not read, and take connections without end.
 */
export const DEFAULT_LIMITS: ServerLimits = {
  headersMs: 10_000,
  requestMs: 30_000,
  answerMs: 30_000,
  keepAliveMs: 5_000,
  silenceMs: 35_000,
  webSocketIdleMs: 60_000,
  checkEveryMs: 1_000,
  unreadBytes: 67_108_864,
  unanswered: 16,
  connections: 10_000,
  connectionsPerAddress: 1_000,
};
