/** One line of the text exposition format. */
interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The metrics of a service at /metrics. */
export class Scrape {
  readonly samples: readonly Sample[];

  constructor(text: string) {
    this.samples = text.split('\n').filter(isSample).map(readSample);
  }

  /** All series of a name with these label values. */
  series(name: string, labels: Readonly<Record<string, string>> = {}): Sample[] {
    const wanted = Object.entries(labels);
    return this.samples.filter(
      (sample) => sample.name === name && wanted.every(([label, value]) => sample.labels[label] === value),
    );
  }

  /** The sum of these series, or undefined if there are none. */
  sum(name: string, labels: Readonly<Record<string, string>> = {}): number | undefined {
    const series = this.series(name, labels);
    return series.length === 0 ? undefined : series.reduce((total, { value }) => total + value, 0);
  }
}

const isSample = (line: string): boolean => line !== '' && !line.startsWith('#');

/** @throws {Error} for an invalid line */
function readSample(line: string): Sample {
  const [, name, labels = '', value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
  if (name === undefined || value === undefined) throw new Error(`Not a sample: ${line}`);
  const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [label, text]);
  return { name, labels: Object.fromEntries(pairs), value: Number(value.replace('Inf', 'Infinity')) };
}
