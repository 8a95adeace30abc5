const HELP = `npm run bench -- [options]

Compares the gateway with its peers on one machine, in interleaved rounds, in front of one core and one Redis.

  (none)                takes about six minutes
  --quick, --full       takes about two minutes, or about fifteen
  --scenario <names>    measures only these scenarios, such as list-32,banned-32
  --only <contenders>   measures only these contenders, such as gateway,nginx-lua
  --rounds <n>          sets the number of rounds; --seconds <n> sets their length
  --write               writes test/bench/results/speed.csv and speed.svg, or with --floor the files floor*.csv
  --floor               compares gateway and core with their floors, and measures a request, in about three minutes
  --base <folder>       also measures the gateway of another checkout, as the baseline of the ratios
  --help                prints this

With --stores, it measures the cost of keys in SQLite and Redis instead: issuing, listing, startup and backup.

With --neighbours, it measures a healthy client beside each hostile neighbour instead, in about four minutes:

  --only <rows>         measures only these rows, such as banned,idle
  --report              exits with 0 even if a row fails
  --write               writes test/bench/results/neighbours.csv
`;

if (process.argv.includes('--help')) {
  process.stdout.write(HELP);
} else {
  // A misspelt option is reported in one line; an error in the benchmark itself keeps its stack trace.
  const other = ['neighbours', 'stores'].find((name) => process.argv.includes(`--${name}`));
  const program = other === 'neighbours' ? './neighbours/run.ts' : other === 'stores' ? './stores.ts' : './run.ts';
  await import(program).catch((fault: Error) => {
    if (!/^ERR_PARSE_ARGS/.test((fault as NodeJS.ErrnoException).code ?? '')) throw fault;
    process.stderr.write(`${fault.message}. --help lists the options.\n`);
    process.exitCode = 2;
  });
}
