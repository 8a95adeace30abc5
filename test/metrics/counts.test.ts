import { expect, test } from 'vitest';
import { Histogram, Label } from '../../shared/process/counts.ts';

const size = new Label('size', ['s', 'l']);

test.for([
  [0, 0],
  [1, 0],
  [1.000_1, 1],
  [5, 1],
  [5.1, 2],
  [Number.POSITIVE_INFINITY, 2],
])('with buckets for ≤ 1, ≤ 5 and larger values, %s is counted in the bucket at index %s', ([value, bucket]) => {
  const distribution = new Histogram({ name: 'd', help: 'D.' }, [1, 5]);
  distribution.observe(value as number);
  const counts = distribution.family().values.filter(({ metricName }) => metricName === 'd_bucket');
  expect(counts.map(({ value: count }) => count)).toEqual([0, 1, 2].map((at) => (at >= (bucket as number) ? 1 : 0)));
});

test('a distribution has cumulative buckets, a sum and a count for each value of its label', () => {
  const distribution = new Histogram({ name: 'd', help: 'D.' }, [1, 5], size);
  for (const value of [0.5, 2, 2, 7]) distribution.observe(value, size.positionOf('l'));
  const ofLarge = distribution.family().values.filter(({ labels }) => labels.size === 'l');
  expect(ofLarge.map(({ metricName, labels: { le }, value }) => [metricName, le, value])).toEqual([
    ['d_bucket', '1', 1],
    ['d_bucket', '5', 3],
    ['d_bucket', '+Inf', 4],
    ['d_sum', undefined, 11.5],
    ['d_count', undefined, 4],
  ]);
});
