import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { folder, runProgram } from './processes.ts';

/** Where a Node process spends its time: stacks sampled by perf, each attributed to one part of the work. */

/** Options that make Node write the names of its compiled functions where perf finds them. */
export const NAMED_FUNCTIONS = '--perf-basic-prof --interpreted-frames-native-stack';

const PER_SECOND = 997;

interface Frame {
  readonly isKernel: boolean;
  readonly symbol: string;
}

interface Stack {
  readonly thread: string;
  /** Innermost first. */
  readonly frames: readonly Frame[];
}

/**
 * Samples a process that runs with NAMED_FUNCTIONS.
 * @returns the number of samples for each part of the work
 * @throws {Error} with perf's message if it may not sample: it needs root, or a low kernel.perf_event_paranoid
 */
export async function sampleParts(pid: number, seconds: number): Promise<Map<string, number>> {
  const file = join(folder, `perf-${pid}`);
  const record = ['record', '-F', String(PER_SECOND), '--call-graph', 'fp', '-p', String(pid), '-o', file];
  await runProgram('perf', [...record, '--', 'sleep', String(seconds)], {});
  const text = await runProgram('perf', ['script', '-i', file, '-F', 'comm,ip,sym'], {});
  rmSync(file);
  const stacks = text.split('\n\n').flatMap((sample) => readStack(sample) ?? []);
  return new Map([...Map.groupBy(stacks, partOf)].map(([part, those]) => [part, those.length]));
}

/** Reads one sample of `perf script`: the thread, then a line with address and symbol for each frame. */
function readStack(sample: string): Stack | undefined {
  const [thread = '', ...lines] = sample.trim().split('\n');
  if (lines.length === 0) return undefined;
  const frames = lines.map((line) => {
    const [address = '', ...symbol] = line.trim().split(' ');
    return { isKernel: address.startsWith('ffff'), symbol: symbol.join(' ') };
  });
  return { thread: thread.trim(), frames };
}

const GARBAGE = /Scaveng|Heap::|MarkCompact|Sweep|MarkingVisitor/;
const SCRIPT = /(?:node:|file:\/\/|\/node_modules\/)\S*/;

/** The first pattern that matches the innermost script of a stack determines its part. */
const SCRIPTS: readonly (readonly [part: string, script: RegExp])[] = [
  ['ours: log line and metrics', /\/(?:gateway\/telemetry|shared\/process)\//],
  ['ours: decision', /\/gateway\/(?:limiter|stores)\//],
  ['ours: the call to the core', /\/gateway\/upstream\//],
  ['ioredis', /\/node_modules\/(?:@?ioredis|denque|redis)/],
  ['other libraries', /\/node_modules\//],
  ['ours: the rest of the pipeline', /\/(?:gateway|shared)\//],
  ['node:http', /^node:_http/],
  ['sockets and streams', /^node:(?:net|stream|internal\/(?:streams|stream_base))/],
  ['timers, ticks, promises', /^node:(?:timers|events|internal\/(?:timers|process|async|priority))/],
];
const OTHER_OF_NODE = 'other Node.js internals (JavaScript)';

/** The part of the work that a stack belongs to: by its kernel function, otherwise by its innermost script. */
function partOf({ thread, frames }: Stack): string {
  if (thread.includes('V8')) return 'garbage collection and compilation, other threads';
  if (thread.includes('uv')) return 'log writing, other threads';
  const scripts = frames.map(({ symbol }) => scriptOf(symbol));
  const at = scripts.findIndex((script) => script !== undefined);
  const inside = at === -1 ? frames : frames.slice(0, at);
  const symbols = inside.map(({ symbol }) => symbol).join(' ');
  if (inside.some(({ isKernel }) => isKernel)) return kernelPart(symbols);
  if (GARBAGE.test(symbols)) return 'garbage collection';
  const script = scripts[at];
  if (script !== undefined) return SCRIPTS.find(([, pattern]) => pattern.test(script))?.[0] ?? OTHER_OF_NODE;
  return /llhttp|parser/i.test(symbols) ? 'node:http' : 'event loop, microtasks';
}

/**
 * The symbol of a compiled function is `JS:`, a mark, a name and a location. Regular expressions have no location.
 */
function scriptOf(symbol: string): string | undefined {
  return symbol.startsWith('JS:') ? SCRIPT.exec(symbol)?.[0] : undefined;
}

function kernelPart(symbols: string): string {
  if (symbols.includes('epoll')) return 'kernel: waiting';
  return /write|send/.test(symbols) ? 'kernel: writing' : 'kernel: reading and the rest';
}
