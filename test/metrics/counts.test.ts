import { expect, test } from 'vitest';
import { Counter, Histogram, Label, sumOf } from '../../shared/process/counts.ts';

const about = { name: 'x_total', help: 'Of x.' };
const colour = new Label('colour', ['none', 'red', 'green']);
const size = new Label('size', ['s', 'l']);

test('a tally shows counted and declared series, and nothing else', () => {
  const tally = new Counter(about, colour, size);
  tally.declare('green', 's');
  tally.add(colour.positionOf('red'), size.positionOf('l'));
  tally.add(colour.positionOf('red'), size.positionOf('l'));
  expect(tally.family()).toEqual({
    ...about,
    type: 'counter',
    values: [
      { labels: { colour: 'red', size: 'l' }, value: 2 },
      { labels: { colour: 'green', size: 's' }, value: 0 },
    ],
  });
});

test('every combination of three labels is counted separately', () => {
  const third = new Label('third', ['a', 'b', 'c', 'd']);
  const tally = new Counter(about, colour, size, third);
  let expected = 0;
  for (const [one] of colour.values.entries())
    for (const [two] of size.values.entries())
      for (const [three] of third.values.entries()) {
        expected += 1;
        for (let times = 0; times < expected; times++) tally.add(one, two, three);
      }
  const { values } = tally.family();
  expect(values.map(({ value }) => value)).toEqual(Array.from({ length: expected }, (_, at) => at + 1));
  expect(values.at(-1)?.labels).toEqual({ colour: 'green', size: 'l', third: 'd' });
});

test('an unknown value of a label counts as its first value', () => {
  expect([colour.positionOf('as_made_up_by_a_client'), colour.positionOf(undefined)]).toEqual([0, 0]);
});

test.for([
  [0, 0],
  [1, 0],
  [1.000_1, 1],
  [5, 1],
  [5.1, 2],
  [Number.POSITIVE_INFINITY, 2],
])('%s falls into bucket %s of ≤ 1, ≤ 5 and more', ([value, bucket]) => {
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

test('the sum of several contains every series of each', () => {
  const [one, other] = [new Counter(about, colour), new Counter(about, colour)];
  one.add(1);
  other.add(1);
  other.add(2);
  const distribution = new Histogram({ name: 'd', help: 'D.' }, [1]);
  distribution.observe(3);
  const sum = sumOf([[one.family()], [other.family(), distribution.family()], []]);
  expect(sum.map(({ name, type }) => [name, type])).toEqual([
    ['x_total', 'counter'],
    ['d', 'histogram'],
  ]);
  expect(sum[0]?.values).toEqual([
    { labels: { colour: 'red' }, value: 2 },
    { labels: { colour: 'green' }, value: 1 },
  ]);
  expect(sum[1]).toEqual(distribution.family());
});
