import type { Credential } from '../limiter/credential.ts';
import type { KnownKeys, LocalDecisions } from '../limiter/known-keys.ts';
import type { Decision, Unauthorized, Verdict } from '../limiter/limiter.ts';
import type { Channel } from './channel.ts';
import type { AskedOfPrimary, AskedOfWorker } from './messages.ts';

/**
 * A worker's local decisions. The primary takes them because it knows what all workers know. If the primary is gone,
 * does not answer in time or knows nothing of the key, the worker decides with its own data.
 */
export class KeysOfMachine implements LocalDecisions {
  readonly #own: KnownKeys;
  readonly #primary: Channel<AskedOfPrimary, AskedOfWorker>;

  constructor(own: KnownKeys, primary: Channel<AskedOfPrimary, AskedOfWorker>) {
    this.#own = own;
    this.#primary = primary;
  }

  note(credential: Credential, verdict: Decision | Unauthorized, wasDecided: boolean, askedAt: number): void {
    this.#own.note(credential, verdict, wasDecided, askedAt);
  }

  decide(credential: Credential): Promise<Verdict | undefined> {
    return this.#ask('decide', credential);
  }

  peek(credential: Credential): Promise<Verdict | undefined> {
    return this.#ask('peek', credential);
  }

  async #ask(name: 'decide' | 'peek', credential: Credential): Promise<Verdict | undefined> {
    const { id, digest, use } = credential;
    const verdict = await this.#primary.ask(name, { id, digest, use, heardAt: this.#own.heardAt(id) });
    return verdict ?? this.#own[name](credential);
  }
}
