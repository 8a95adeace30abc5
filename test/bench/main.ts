/** `npm run bench` compares the gateway with its peers; with `--neighbours` it measures a client beside hostile ones. */
await import(process.argv.includes('--neighbours') ? './neighbours/run.ts' : './run.ts');
