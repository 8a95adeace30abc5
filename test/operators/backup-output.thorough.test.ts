import { expect, test } from 'vitest';
import type { ActivityAnswer } from '../../gateway/operators/api/answers.ts';
import { operatorOf } from '../support/ctl.ts';
import { inTurn } from '../support/in-turn.ts';
import { get } from '../support/operators.ts';
import { startProcess } from '../support/process.ts';
import { startStack } from '../support/stack.ts';

/** Backups whose output is lost. */

test('a backup that cannot be written is reported', async () => {
  const stack = await startStack();
  const words = ['-c', '"$0" gateway/operators/cli/main.ts backup > /dev/full', process.execPath];
  const { code, err } = await startProcess('sh', words, operatorOf(stack)).ended;
  expect([code, err]).toEqual([1, 'The output cannot be written: ENOSPC: no space left on device, write\n']);
});

test('a backup whose reader leaves before its end is a fault, and is not recorded', async () => {
  const stack = await startStack();
  // Together, the keys need more than the 64 kB that fit into a pipe.
  const tags = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`tag-${at}`, 'x'.repeat(60)]));
  await inTurn(Array.from({ length: 150 }), 8, () => stack.issueKey({ tags }));
  const backUpTo = async (reader: string) => {
    const command = `"$0" gateway/operators/cli/main.ts backup | ${reader}`;
    return await startProcess('bash', ['-o', 'pipefail', '-c', command, process.execPath], operatorOf(stack)).ended;
  };
  for (const reader of ['(head -c 1000 > /dev/null; sleep 0.5)', 'head -c 10', 'true'])
    expect(await backUpTo(reader)).toMatchObject({
      code: 1,
      err: 'The output cannot be written: its reader has closed it\n',
    });
  const recorded = async () => (await get<ActivityAnswer>(stack, '/activity?action=backup.make')).activity;
  expect(await recorded()).toEqual([]);
  expect(await backUpTo('cat')).toMatchObject({ code: 0, err: '' });
  expect(await recorded()).toHaveLength(1);
});
