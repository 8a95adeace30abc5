import { z } from 'zod';
import { parseJson, toJson } from '../../shared/json.ts';
import { NewPet, type Pet } from '../../shared/pet.ts';

/**
 * What a small body costs, in µs: reading it with exact int64, checking it, writing it. Interleaved rounds, medians.
 *
 *     node test/bench/body.ts
 */

const ROUNDS = 15;
const CALLS = 20_000;

const small = Buffer.from('{"name":"Rex","categoryId":1234,"status":"available"}');
const large = Buffer.from('{"name":"Rex","categoryId":9223372036854775807,"status":"available"}');
const value = parseJson(small);
const pet: Pet = { id: 17n, name: 'Rex', categoryId: 9223372036854775807n, status: 'available' };
const compiled = z.compile(NewPet);

const contenders: Record<string, () => unknown> = {
  'JSON.parse alone': () => JSON.parse(small.toString()),
  'parseJson, small integers': () => parseJson(small),
  'parseJson, an int64': () => parseJson(large),
  'NewPet.safeParse': () => NewPet.safeParse(value),
  'z.compile(NewPet).safeParse': () => compiled.safeParse(value),
  'toJson, an int64': () => toJson(pet),
};

function microseconds(run: () => unknown): number {
  const start = performance.now();
  for (let call = 0; call < CALLS; call++) run();
  return ((performance.now() - start) * 1_000) / CALLS;
}

const times = new Map<string, number[]>(Object.keys(contenders).map((name) => [name, []]));
for (let at = 0; at < ROUNDS; at++)
  for (const [name, run] of Object.entries(contenders)) times.get(name)?.push(microseconds(run));
for (const [name, values] of times) {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, mid, high] = [sorted[0], sorted[Math.floor(ROUNDS / 2)], sorted.at(-1)] as [number, number, number];
  process.stdout.write(`${name.padEnd(30)} ${mid.toFixed(2)} µs (${low.toFixed(2)}–${high.toFixed(2)})\n`);
}
