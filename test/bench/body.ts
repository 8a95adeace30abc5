import { z } from 'zod';
import { parseJson, toJson } from '../../shared/schemas/json.ts';
import { NewPet, type Pet } from '../../shared/schemas/pet.ts';
import { timeEach } from './results/timing.ts';

/**
 * Measures the cost of a small body in µs: reading it with exact int64 values, validating it and writing it. Prints
 * medians of interleaved rounds.
 *
 *     node test/bench/body.ts
 */

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

for (const [name, text] of timeEach(contenders)) process.stdout.write(`${name.padEnd(30)} ${text}\n`);
