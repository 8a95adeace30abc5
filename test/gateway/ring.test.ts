import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Ring } from '../../shared/ring.ts';

test('a ring is a queue of a fixed length, whatever is put in and taken out', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 8 }), fc.array(fc.boolean(), { maxLength: 100 }), (capacity, steps) => {
      const ring = new Ring<number>(capacity);
      const model: number[] = [];
      for (const [at, isPush] of steps.entries()) {
        if (!isPush) expect(ring.shift()).toBe(model.shift());
        else if (model.length === capacity) expect(() => ring.push(at)).toThrow(RangeError);
        else {
          ring.push(at);
          model.push(at);
        }
        expect([...ring]).toEqual(model);
        expect([ring.length, ring.first, ring.isFull]).toEqual([model.length, model[0], model.length === capacity]);
      }
    }),
  );
});
