import type { Clients, LocalDecisions } from '../limiter/clients.ts';
import type { Credential } from '../limiter/credential.ts';
import type { Verdict } from '../limiter/limiter.ts';
import type { Channel } from './channel.ts';
import type { AskedOfPrimary, AskedOfWorker } from './messages.ts';

/**
 * A worker's local decisions. The primary takes them because it knows what all workers know. If it is gone, does not
 * answer in time or does not know the key, the worker decides from its own data.
 */
export class KeysOfMachine implements LocalDecisions {
  readonly #own: Clients;
  readonly #primary: Channel<AskedOfPrimary, AskedOfWorker>;

  constructor(own: Clients, primary: Channel<AskedOfPrimary, AskedOfWorker>) {
    this.#own = own;
    this.#primary = primary;
  }

  async decide(credential: Credential, owes: boolean): Promise<Verdict | undefined> {
    const verdict = await this.#primary.ask('decide', { ...this.#question(credential), owes });
    return verdict ?? this.#own.decide(credential, owes);
  }

  async peek(credential: Credential): Promise<Verdict | undefined> {
    return (await this.#primary.ask('peek', this.#question(credential))) ?? this.#own.peek(credential);
  }

  #question({ id, digest, use }: Credential) {
    return { id, digest, use, heardAt: this.#own.heardAt(id), owes: false };
  }
}
