import type { Clients, LocalDecisions } from '../limiter/clients.ts';
import type { Credential } from '../limiter/credential.ts';
import type { Channel } from './channel.ts';
import type { AskedOfPrimary, AskedOfWorker } from './messages.ts';

/**
 * A worker's local decisions. The primary takes them because it knows what all workers know. If it is gone, does not
 * answer in time or does not know the key, the worker decides from its own data.
 */
export function keysOfMachine(own: Clients, primary: Channel<AskedOfPrimary, AskedOfWorker>): LocalDecisions {
  const about = ({ id, digest, use }: Credential, owes = false) => ({
    id,
    digest,
    use,
    heardAt: own.heardAt(id),
    owes,
  });
  return {
    decide: async (credential, owes) =>
      (await primary.ask('decide', about(credential, owes))) ?? own.decide(credential, owes),
    peek: async (credential) => (await primary.ask('peek', about(credential))) ?? own.peek(credential),
  };
}
