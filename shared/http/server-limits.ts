/** What a server allows its clients. Times in milliseconds. */
export interface ServerLimits {
  /** For the head of a request to arrive; also for the first request of a connection. */
  readonly headersMs: number;
  /** For a whole request to arrive. */
  readonly requestMs: number;
  /** For the client to read an answer, from the first time it has to wait. */
  readonly answerMs: number;
  /** Between an answer and the next request. */
  readonly keepAliveMs: number;
  /** Without data in either direction. Longer than requestMs, whose timeout still sends an answer. */
  readonly silenceMs: number;
  /** Without data on a WebSocket. Most clients and servers ping twice a minute. */
  readonly webSocketIdleMs: number;
  /** How often these limits are checked. */
  readonly checkEveryMs: number;
  /** Unread bytes of all answers in this process. Above this limit, the connections with the most are cut. */
  readonly unreadBytes: number;
  /** Requests of a connection that run at once. The next one begins when answers have ended. */
  readonly unanswered: number;
  readonly connections: number;
  readonly connectionsPerAddress: number;
}

/**
 * The limits of our HTTP servers. Node's own defaults give a slow client minutes (headersTimeout 60 s, checked every 30
 * s), never drop a client that does not read, and accept any number of connections.
 */
export const DEFAULT_LIMITS: ServerLimits = {
  headersMs: 10_000,
  requestMs: 30_000,
  answerMs: 30_000,
  keepAliveMs: 5_000,
  silenceMs: 35_000,
  webSocketIdleMs: 60_000,
  checkEveryMs: 1_000,
  unreadBytes: 33_554_432,
  unanswered: 1,
  connections: 10_000,
  connectionsPerAddress: 1_000,
};
