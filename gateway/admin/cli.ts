import { Command, InvalidArgumentError, Option } from 'commander';
import { SettingsError } from '../../shared/env.ts';
import { PLAN_FIELDS, PLAN_NAMES, type Plan, type PlanName, type PlanTable, parseLimit } from '../access/plans.ts';
import { AdminError, callAdmin, findAdmin } from './client.ts';
import { table } from './table.ts';

/** The operator's command line: a thin client of the admin listener, alike for Redis and for the embedded limiter. */

interface KeyView {
  readonly id: string;
  readonly name: string;
  readonly plan: PlanName;
  readonly minute?: number;
  readonly day?: number;
  readonly state: string;
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly admitted: number;
  readonly refused: number;
}

const program = new Command('ctl')
  .description('Operates a running gateway: API keys and plan limits.')
  .option('--json', 'print the answer as JSON')
  .addHelpText(
    'after',
    `
The gateway is found by ADMIN_HOST, ADMIN_PORT and ADMIN_TOKEN; without a token by DATA_DIR/admin-token.

Examples:
  ctl keys create --plan pro --name acme
  ctl plans set free --minute 120`,
  );

const keys = program.command('keys').description('issue, list and revoke API keys');

keys
  .command('create')
  .description('issue a key; the whole key is shown this once')
  .addOption(new Option('--plan <plan>', 'the plan of the key').choices(PLAN_NAMES).makeOptionMandatory())
  .requiredOption('--name <name>', 'whose key it is')
  .option('--minute <requests>', "requests a minute, in place of the plan's", limit)
  .option('--day <requests>', "requests a day, in place of the plan's", limit)
  .option('--expires <time>', 'when it ends, as 2030-12-31T00:00:00Z')
  .action(async ({ expires, ...options }: { expires?: string }) => {
    const created = (await call('POST', '/keys', { ...options, expiresAt: expires })) as KeyView & { key: string };
    print(created, () => `${describeKeys([created])}\n\nThe key, shown this once:\n${created.key}`);
  });

keys
  .command('list')
  .description('list keys, the newest first')
  .option('--offset <number>', 'skip the newest ones', '0')
  .action(async ({ offset }: { offset: string }) => {
    const list = (await call('GET', `/keys?offset=${encodeURIComponent(offset)}`)) as {
      total: number;
      keys: KeyView[];
    };
    print(list, () => `${describeKeys(list.keys)}\n\n${list.keys.length} of ${list.total}`);
  });

keys
  .command('revoke')
  .description('revoke a key for good; its next request is refused')
  .argument('<id>', 'the public part of the key, as `keys list` shows it')
  .action(async (id: string) => {
    await call('DELETE', `/keys/${encodeURIComponent(id)}`);
    print({ id, revoked: true }, () => `Revoked ${id}.`);
  });

const plans = program.command('plans').description('show and set plan limits');

plans
  .command('show')
  .description('show the plan table in force')
  .action(async () => {
    const shown = (await call('GET', '/plans')) as PlanTable;
    print(shown, () => describePlans(shown));
  });

const set = plans
  .command('set')
  .description('change limits of a plan; every gateway takes them within a second')
  .argument('<plan>', `one of ${PLAN_NAMES.join(', ')}`)
  .action(async (plan: string, options: Record<string, number>) => {
    const changes = Object.fromEntries(PLAN_FIELDS.map((field) => [field, options[camelCase(field)]]));
    const changed = (await call('PATCH', `/plans/${encodeURIComponent(plan)}`, changes)) as Plan;
    print(changed, () => describePlans({ [plan]: changed }));
  });
for (const field of PLAN_FIELDS) set.option(`--${field.replaceAll('_', '-')} <number>`, helpFor(field), limit);

await program.parseAsync().catch((fault: unknown) => {
  if (!(fault instanceof AdminError || fault instanceof SettingsError)) throw fault;
  process.stderr.write(`${fault.message}\n`);
  process.exitCode = 1;
});

async function call(
  ...request: [method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown]
): Promise<unknown> {
  return await callAdmin(await findAdmin(process.env), ...request);
}

function print(value: unknown, describe: () => string): void {
  process.stdout.write(`${program.opts().json ? JSON.stringify(value, undefined, 2) : describe()}\n`);
}

function limit(text: string): number {
  const value = parseLimit(text);
  if (value === undefined) throw new InvalidArgumentError('It must be a whole number from 1 to 1000000000.');
  return value;
}

function describeKeys(views: readonly KeyView[]): string {
  const head = ['id', 'name', 'plan', 'state', 'minute', 'day', 'admitted', 'refused', 'created', 'expires'];
  const rows = views.map((key) => [
    key.id,
    key.name,
    key.plan,
    key.state,
    key.minute,
    key.day,
    key.admitted,
    key.refused,
    key.createdAt,
    key.expiresAt ?? '-',
  ]);
  return table(head, rows);
}

function describePlans(shown: Readonly<Record<string, Plan>>): string {
  const rows = Object.entries(shown).map(([name, plan]) => [name, ...PLAN_FIELDS.map((field) => plan[field])]);
  return table(['plan', ...PLAN_FIELDS], rows);
}

function camelCase(field: string): string {
  return field.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function helpFor(field: (typeof PLAN_FIELDS)[number]): string {
  const help = {
    minute: 'requests a minute',
    day: 'requests a day',
    ban_after: 'refusals after which a key is banned ...',
    ban_within_seconds: '... when they come within so many seconds',
    ban_seconds: 'length of the first ban; each further one within a day is twice as long',
  };
  return help[field];
}
