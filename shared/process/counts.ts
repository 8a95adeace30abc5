/**
 * Counters that cost a few nanoseconds: numbers in a table of fixed size, which get their names and labels when they
 * are read. The metrics library looks up labels for every value. That costs 1.2 to 2.3 µs a request instead of 0.1, or
 * about 2 % of the gateway's CPU (`node test/bench/steps.ts`, the rows on counting).
 */

export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'histogram' | 'gauge';
  readonly values: readonly Series[];
}

export interface Series {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** The name of a part of a histogram; undefined for the family's own name. */
  readonly metricName?: string;
}

/** A label and all its values. An unknown value counts as the first one, so callers cannot add series. */
export class Label {
  readonly name: string;
  readonly values: readonly string[];
  readonly #positions: ReadonlyMap<string | undefined, number>;

  constructor(name: string, values: readonly string[]) {
    this.name = name;
    this.values = values;
    this.#positions = new Map(values.map((value, position) => [value, position]));
  }

  positionOf(value: string | undefined): number {
    return this.#positions.get(value) ?? 0;
  }
}

const FIRST_STATUS = 100;
/** RFC 9110 §15. A status above this counts as `other`. */
const LAST_STATUS = 599;

/** The label of an HTTP status. */
export const statusLabel = (): Label =>
  new Label('status', [
    'other',
    ...Array.from({ length: LAST_STATUS - FIRST_STATUS + 1 }, (_, at) => `${FIRST_STATUS + at}`),
  ]);

/** The position of a status among the values of its label. */
export const positionOfStatus = (status: number): number =>
  status >= FIRST_STATUS && status <= LAST_STATUS ? status - FIRST_STATUS + 1 : 0;

/** A label with one value, for tables with fewer than three labels. */
const NO_LABEL = new Label('', ['']);

interface About {
  readonly name: string;
  readonly help: string;
}

/** A counter with up to three labels. A combination appears once it has been counted or declared. */
export class Counter {
  readonly #about: About;
  readonly #labels: readonly [Label, Label, Label];
  /** How many values the second and the third label have. */
  readonly #seconds: number;
  readonly #thirds: number;
  readonly #cells: Float64Array;
  readonly #declared = new Set<number>();

  constructor(about: About, first = NO_LABEL, second = NO_LABEL, third = NO_LABEL) {
    this.#about = about;
    this.#labels = [first, second, third];
    this.#seconds = second.values.length;
    this.#thirds = third.values.length;
    this.#cells = new Float64Array(first.values.length * second.values.length * third.values.length);
  }

  /** Adds one. The arguments are positions of the labels' values. */
  add(first = 0, second = 0, third = 0): void {
    (this.#cells[this.#cellOf(first, second, third)] as number) += 1;
  }

  /** Adds a number for a value of the first label. */
  addMany(count: number, first: string): void {
    (this.#cells[this.#cellOf(this.#labels[0].positionOf(first), 0, 0)] as number) += count;
  }

  /** Shows a combination as 0 from the start. Otherwise a rate would miss the first count of a series. */
  declare(first: string, second = '', third = ''): void {
    const [one, two, three] = this.#labels;
    this.#declared.add(this.#cellOf(one.positionOf(first), two.positionOf(second), three.positionOf(third)));
  }

  family(): Family {
    const values: Series[] = [];
    // An iterator is ten times slower here: there are thousands of cells, and most are 0.
    for (let cell = 0; cell < this.#cells.length; cell++) {
      const value = this.#cells[cell] as number;
      if (value > 0 || this.#declared.has(cell)) values.push({ labels: this.#labelsOf(cell), value });
    }
    return { ...this.#about, type: 'counter', values };
  }

  #cellOf(first: number, second: number, third: number): number {
    return (first * this.#seconds + second) * this.#thirds + third;
  }

  #labelsOf(cell: number): Record<string, string> {
    const third = cell % this.#thirds;
    const second = Math.floor(cell / this.#thirds) % this.#seconds;
    const first = Math.floor(cell / this.#thirds / this.#seconds);
    const named = this.#labels.map(({ name, values }, at) => [name, values[[first, second, third][at] as number]]);
    return Object.fromEntries(named.filter(([name]) => name !== ''));
  }
}

/** A histogram with at most one label. */
export class Histogram {
  readonly #about: About;
  readonly #bounds: readonly number[];
  readonly #label: Label;
  /** Per label value: the count of each bucket, the count above the last bound, and the sum. */
  readonly #rows: readonly Float64Array[];
  readonly #shown: 'all' | 'observed';

  /**
   * @param bounds upper ends of the buckets, ascending
   * @param shown the label values with series: all, or only those that have been observed
   */
  constructor(about: About, bounds: readonly number[], label = NO_LABEL, shown: 'all' | 'observed' = 'all') {
    this.#about = about;
    this.#bounds = bounds;
    this.#label = label;
    this.#shown = shown;
    this.#rows = label.values.map(() => new Float64Array(bounds.length + 2));
  }

  observe(value: number, position = 0): void {
    const row = this.#rows[position] as Float64Array;
    let bucket = 0;
    while (bucket < this.#bounds.length && value > (this.#bounds[bucket] as number)) bucket++;
    (row[bucket] as number) += 1;
    (row[this.#bounds.length + 1] as number) += value;
  }

  family(): Family {
    const isShown = (row: Float64Array) => this.#shown === 'all' || row.some((count) => count > 0);
    const values = this.#rows.flatMap((row, at) => (isShown(row) ? this.#seriesOf(row, at) : []));
    return { ...this.#about, type: 'histogram', values };
  }

  #seriesOf(row: Float64Array, at: number): Series[] {
    const { name } = this.#about;
    const own = this.#label.name === '' ? {} : { [this.#label.name]: this.#label.values[at] as string };
    let total = 0;
    const buckets = [...this.#bounds, '+Inf'].map((le, bucket) => {
      total += row[bucket] as number;
      return { metricName: `${name}_bucket`, labels: { ...own, le: String(le) }, value: total };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels: own, value: row[this.#bounds.length + 1] as number },
      { metricName: `${name}_count`, labels: own, value: total },
    ];
  }
}

/** The sum of several counts. It includes families and series that only some of them have. */
export function sumOf(several: readonly (readonly Family[])[]): Family[] {
  const families = new Map<string, { about: Family; series: Map<string, Series> }>();
  for (const family of several.flat()) {
    const { name } = family;
    const known = families.get(name) ?? { about: family, series: new Map() };
    families.set(name, known);
    for (const one of family.values) {
      const identity = JSON.stringify([one.metricName, one.labels]);
      known.series.set(identity, { ...one, value: one.value + (known.series.get(identity)?.value ?? 0) });
    }
  }
  return [...families.values()].map(({ about, series }) => ({ ...about, values: [...series.values()] }));
}
