const HELP = `npm run bench -- [options]

Compares the gateway with its peers on one machine: one run, interleaved, in front of one core and one Redis.

  (none)                about six minutes
  --quick, --full       about two minutes, about fifteen
  --scenario <names>    only these, list-32,banned-32 for instance
  --only <contenders>   only these, gateway,nginx-lua for instance
  --rounds <n>          rounds of each; --seconds <n>, how long each is
  --write               write test/bench/results/speed.csv and speed.svg
  --floor               gateway and core beside their floors, and what a request takes, in about three minutes
  --base <folder>       also the gateway of another checkout; ratios are to it
  --help                this

With --stores it measures what keys cost in SQLite and in Redis instead: issuing, lists, a start, a backup.

With --neighbours it measures a healthy client beside each hostile neighbour instead, in about four minutes:

  --only <rows>         only these, banned,idle for instance
  --report              end with 0 whatever was measured
  --write               write test/bench/results/neighbours.csv
`;

if (process.argv.includes('--help')) {
  process.stdout.write(HELP);
} else {
  // What is misspelt is told in a line; a fault of the benchmark's own keeps its stack.
  const other = ['neighbours', 'stores'].find((name) => process.argv.includes(`--${name}`));
  const program = other === 'neighbours' ? './neighbours/run.ts' : other === 'stores' ? './stores.ts' : './run.ts';
  await import(program).catch((fault: Error) => {
    if (!/^ERR_PARSE_ARGS/.test((fault as NodeJS.ErrnoException).code ?? '')) throw fault;
    process.stderr.write(`${fault.message}. --help lists the options.\n`);
    process.exitCode = 2;
  });
}
