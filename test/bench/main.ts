const HELP = `npm run bench -- [options]

Compares the gateway with its peers on one machine: one run, interleaved, in front of one core and one Redis.

  (none)                about six minutes
  --quick, --full       about two minutes, about fifteen
  --scenario <names>    only these, such as list-32,banned-32
  --only <contenders>   only these, such as gateway,nginx-lua
  --rounds <n>          number of rounds; --seconds <n> sets their length
  --write               write test/bench/results/speed.csv and speed.svg, or with --floor the files floor*.csv
  --floor               gateway and core compared with their floors, and the cost of a request, in about three minutes
  --base <folder>       also the gateway of another checkout, to which the ratios refer
  --help                prints this

With --stores it measures the cost of keys in SQLite and in Redis instead: issuing, lists, a start, a backup.

With --neighbours it measures a healthy client beside each hostile neighbour instead, in about four minutes:

  --only <rows>         only these, such as banned,idle
  --report              exit with 0 whatever was measured
  --write               write test/bench/results/neighbours.csv
`;

if (process.argv.includes('--help')) {
  process.stdout.write(HELP);
} else {
  // A misspelt option is reported in one line; a fault of the benchmark itself keeps its stack trace.
  const other = ['neighbours', 'stores'].find((name) => process.argv.includes(`--${name}`));
  const program = other === 'neighbours' ? './neighbours/run.ts' : other === 'stores' ? './stores.ts' : './run.ts';
  await import(program).catch((fault: Error) => {
    if (!/^ERR_PARSE_ARGS/.test((fault as NodeJS.ErrnoException).code ?? '')) throw fault;
    process.stderr.write(`${fault.message}. --help lists the options.\n`);
    process.exitCode = 2;
  });
}
