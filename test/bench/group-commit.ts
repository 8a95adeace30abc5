import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { insertPet } from '../../core/store/queries.ts';
import { SqliteStore } from '../../core/store/sqlite.ts';
import { median } from '../support/statistics.ts';

/**
 * Measures the effect of group commit: µs per write for one writer with a commit per write, and for 1, 32 and 128
 * writers that share a commit per event loop turn. Each writer waits for its previous write. Prints medians of
 * interleaved rounds and the spread of the ratio.
 *
 *     node test/bench/group-commit.ts
 */

const ROUNDS = 9;
const ROUND_MS = 400;
const WRITERS = [1, 32, 128];

async function round(store: SqliteStore, writers: number): Promise<number> {
  const end = performance.now() + ROUND_MS;
  let writes = 0;
  const writer = async () => {
    for (; performance.now() < end; writes++)
      await store.write(() => insertPet({ name: 'Rex', categoryId: 1n, status: 'available' }));
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: writers }, writer));
  return ((performance.now() - start) * 1_000) / writes;
}

const folder = mkdtempSync(join(tmpdir(), 'group-commit-'));
const store = new SqliteStore(join(folder, 'store.db'));
process.stdout.write('writers  commit per write   commit per turn   ratio (spread)\n');
for (const writers of WRITERS) {
  const rounds: { alone: number; grouped: number }[] = [];
  for (let at = 0; at < ROUNDS; at++)
    rounds.push({ alone: await round(store, 1), grouped: await round(store, writers) });
  const ratios = rounds.map((times) => times.alone / times.grouped);
  const [slow, fast] = [median(rounds.map((times) => times.alone)), median(rounds.map((times) => times.grouped))];
  const spread = `${Math.min(...ratios).toFixed(1)}–${Math.max(...ratios).toFixed(1)}`;
  process.stdout.write(
    `${String(writers).padStart(7)}   ${slow.toFixed(1).padStart(10)} µs/write ${fast.toFixed(1).padStart(10)} µs/write   ${median(ratios).toFixed(1)}× (${spread})\n`,
  );
}
await store.close();
rmSync(folder, { recursive: true });
