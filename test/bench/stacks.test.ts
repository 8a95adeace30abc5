import { expect, test } from 'vitest';
import { partOf, readStack, type Stack } from './machine/stacks.ts';

/** Samples as perf prints them. */
const sample = (thread: string, ...frames: string[]): Stack =>
  readStack(`${thread} \n${frames.map((frame) => `\t    ${frame}`).join('\n')}\n`) as Stack;

const PIPELINE = "7fdf JS:*'handle file:///srv/gateway/pipeline/pipeline.ts:55:24";
const ANSWER = "7fdf JS:*'readHead file:///srv/gateway/upstream/answer.ts:88:18";
const READ = "7fdf JS:*'onStreamRead node:internal/stream_base_commons:171:22";
const RUN = ['1631f67 Builtins_JSEntry', '1610340 uv_run'];

test.for<[string, Stack]>([
  ['ours: the call to the core', sample('node-MainThread', ANSWER, READ, ...RUN)],
  ['ours: the rest of the pipeline', sample('node-MainThread', '1a Builtins_LoadIC', PIPELINE, ANSWER, ...RUN)],
  [
    'ours: the rest of the pipeline',
    sample('node-MainThread', "7f RegExp.< src: '^a$' flags: ''", "7f JS:*'call", PIPELINE),
  ],
  ['ours: decision', sample('node-MainThread', "7f JS:+'note file:///srv/gateway/limiter/known-keys.ts:92:7")],
  ['ours: log line and metrics', sample('node-MainThread', "7f JS:*'observe file:///srv/shared/process/counts.ts:1:1")],
  ['sockets and streams', sample('node-MainThread', READ, ...RUN)],
  ['node:http', sample('node-MainThread', "7f JS:*'end node:_http_outgoing:1173:45", PIPELINE)],
  ['node:http', sample('node-MainThread', '1a llhttp__internal__run', ...RUN)],
  ['ioredis', sample('node-MainThread', '7f JS:~sendCommand /srv/node_modules/ioredis/built/Redis.js:354:16')],
  ['other libraries', sample('node-MainThread', '7f JS:~insert /srv/node_modules/bintrees/lib/rbtree.js:33:35')],
  ['kernel: writing', sample('node-MainThread', 'ffffffff81 tcp_sendmsg_locked', 'ffffffff82 vfs_write', PIPELINE)],
  ['kernel: waiting', sample('node-MainThread', 'ffffffff81 ep_poll', 'ffffffff82 do_epoll_pwait', ...RUN)],
  [
    'timers, ticks, promises',
    sample('node-MainThread', "7f JS:*'processTicksAndRejections node:internal/process/task_queues:72:35", ...RUN),
  ],
  ['other JavaScript of Node', sample('node-MainThread', "7f JS:*'toString node:buffer:971:46", PIPELINE)],
  ['kernel: reading and the rest', sample('node-MainThread', 'ffffffff81 tcp_recvmsg', READ, ...RUN)],
  ['log writing, other threads', sample('libuv-worker', 'ffffffff81 vfs_write')],
  ['garbage collection', sample('node-MainThread', '1a v8::internal::Scavenger::Process()', PIPELINE)],
  [
    'garbage collection and compilation, other threads',
    sample('node-V8Worker', '1a v8::internal::ConcurrentMarking::RunMajor'),
  ],
  ['event loop, microtasks', sample('node-MainThread', ...RUN)],
])('a sample is attributed to %s', ([part, stack]) => {
  expect(partOf(stack)).toBe(part);
});

test('a sample without a stack is not counted', () => {
  expect(readStack('node-MainThread \n')).toBeUndefined();
});
