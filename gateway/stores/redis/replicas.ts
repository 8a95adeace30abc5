import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import { Unconfirmed } from '../storage.ts';
import type { RedisConnection } from './calls.ts';
import { isCluster } from './cluster.ts';
import { fieldsOf, followersIn, type Node } from './info.ts';

/**
 * Waits until a replica has a change. Redis answers before it sends the change to its replicas, and one of them may
 * take over.
 */

/** A replica that takes longer to confirm does not count. */
const CONFIRM_MS = 1_000;
/** How often a node without replicas is checked for new ones. Until then no change waits. */
const LOOK_EVERY_MS = 1_000;
const LOOK_AGAIN_MS = 50;

function servingNode(redis: RedisConnection, name: string): Node | undefined {
  if (!isCluster(redis)) return redis;
  const address = redis.slots[slotOf(name)]?.[0];
  return redis.nodes('master').find(({ options }) => `${options.host}:${options.port}` === address);
}

/** Identifies a connection: WAIT covers only what was written on the same one. */
type Socket = Node['stream'];

/** How many replicas a node had, when, and its replication id. A replica that takes over has another id. */
interface Seen {
  readonly at: number;
  readonly count: number;
  readonly id: string | undefined;
}

export class Replicas {
  readonly #redis: RedisConnection;
  readonly #seen = new WeakMap<Node, Seen>();
  readonly #waits = new WeakMap<Socket, { running: Promise<unknown>; next: Promise<boolean> | undefined }>();

  constructor(redis: RedisConnection) {
    this.#redis = redis;
  }

  /**
   * Call this as soon as Redis has answered a change of `name`. The returned function waits for the confirmation.
   * @throws {Unconfirmed} (by that function) if replicas are connected and none confirms the change within 1 s
   */
  noteWrite(name: string): () => Promise<void> {
    const node = servingNode(this.#redis, name);
    const socket = node?.stream;
    return async () => {
      if (node === undefined || socket === undefined) throw new Unconfirmed();
      if (!(await this.#isSafe(node, socket).catch(() => this.#isStillAlone(node)))) throw new Unconfirmed();
    };
  }

  async #isSafe(node: Node, socket: Socket): Promise<boolean> {
    const seen = this.#seen.get(node);
    const isFresh = seen !== undefined && performance.now() - seen.at < LOOK_EVERY_MS;
    if ((isFresh ? seen : await this.#look(node)).count === 0) return true;
    return (await this.#wait(node, socket)) || (await this.#look(node)).count === 0;
  }

  /** After a lost connection: whether this is the same node, and still has no replica. */
  async #isStillAlone(node: Node): Promise<boolean> {
    const before = this.#seen.get(node);
    for (let waited = 0; before?.count === 0 && waited < CONFIRM_MS; waited += LOOK_AGAIN_MS) {
      const now = await this.#look(node).catch(() => undefined);
      if (now !== undefined) return now.count === 0 && now.id === before.id;
      await sleep(LOOK_AGAIN_MS);
    }
    return false;
  }

  /** Counts only replicas that follow: changes do not wait for one that is still being filled. */
  async #look(node: Node): Promise<Seen> {
    const replication = fieldsOf(await node.info('replication'));
    const seen = { at: performance.now(), count: followersIn(replication), id: replication.master_replid };
    this.#seen.set(node, seen);
    return seen;
  }

  /** WAIT blocks its connection, so one WAIT covers all changes that were answered before it was sent. */
  #wait(node: Node, socket: Socket): Promise<boolean> {
    const waits = this.#waits.get(socket) ?? { running: Promise.resolve(), next: undefined };
    this.#waits.set(socket, waits);
    waits.next ??= waits.running.then(() => {
      // On a new connection, perhaps to another node, WAIT would not cover the change.
      const count = node.stream === socket ? node.wait(1, CONFIRM_MS) : Promise.resolve(0);
      waits.running = count.catch(() => undefined);
      waits.next = undefined;
      return count.then((replicas) => replicas > 0);
    });
    return waits.next;
  }
}
