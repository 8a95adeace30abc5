import { type Fields, fieldsOf, nodesOf } from './info.ts';
import type { RedisConnection } from './script.ts';

/** The share of its memory that each primary uses, 0 to 1. A node that does not answer is left out. */
export async function memoryUsed(redis: RedisConnection): Promise<[node: string, share: number][]> {
  const asked = nodesOf(redis).map(async ([name, node]): Promise<[string, number][]> => {
    if (node.status !== 'ready') return [];
    const share = shareOf(fieldsOf(await node.info('memory')));
    return share === undefined ? [] : [[name, share]];
  });
  return (await Promise.all(asked.map((one) => one.catch(() => [])))).flat();
}

/** Of `maxmemory`; where that is not set, of the machine's. Undefined when a field is missing. */
function shareOf({ used_memory: used, maxmemory, total_system_memory: machine }: Fields): number | undefined {
  const share = Number(used) / (Number(maxmemory) || Number(machine));
  return Number.isFinite(share) ? share : undefined;
}
