import { createHook } from 'node:async_hooks';
import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { setFlagsFromString } from 'node:v8';

/**
 * This module is loaded into a process before its program. It counts what the process does, and writes the result to
 * the file named by BENCH_COUNTED. Each SIGUSR2 begins the next of three counts, which run separately because each
 * would distort the others; the fourth signal ends the last count.
 */

export interface Counted {
  /** The created objects, grouped by the URL of the script that created them: '' for V8 and Node's native code. */
  readonly objects: readonly { readonly url: string; readonly count: number; readonly bytes: number }[];
  readonly promises: number;
  /** How often each function ran, by script. */
  readonly scripts: readonly { readonly url: string; readonly calls: readonly number[] }[];
}

/** A part of the inspector protocol that is missing from Node's types. */
interface Made {
  readonly head: MadeIn;
  readonly samples: readonly { readonly nodeId: number; readonly size: number }[];
}

interface MadeIn {
  readonly id: number;
  readonly callFrame: { readonly url: string };
  readonly children: readonly MadeIn[];
}

const session = new Session();

async function countObjects(): Promise<() => Promise<Counted['objects']>> {
  setFlagsFromString('--sampling-heap-profiler-suppress-randomness');
  const all = { includeObjectsCollectedByMajorGC: true, includeObjectsCollectedByMinorGC: true };
  await session.post('HeapProfiler.startSampling', { samplingInterval: 1, stackDepth: 1, ...all });
  return async () => {
    const { profile } = (await session.post('HeapProfiler.stopSampling')) as unknown as { readonly profile: Made };
    const urls = new Map<number, string>();
    const name = ({ id, callFrame, children }: MadeIn): void => {
      urls.set(id, callFrame.url);
      children.forEach(name);
    };
    name(profile.head);
    const byUrl = Map.groupBy(profile.samples, ({ nodeId }) => urls.get(nodeId) ?? '');
    return [...byUrl].map(([url, made]) => ({
      url,
      count: made.length,
      bytes: made.reduce((total, { size }) => total + size, 0),
    }));
  };
}

function countPromises(): () => Promise<number> {
  let promises = 0;
  const hook = createHook({
    init(_id, type) {
      if (type === 'PROMISE') promises += 1;
    },
  }).enable();
  return async () => {
    hook.disable();
    return promises;
  };
}

async function countCalls(): Promise<() => Promise<Counted['scripts']>> {
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  return async () => {
    const { result } = await session.post('Profiler.takePreciseCoverage');
    return result.map(({ url, functions }) => ({ url, calls: functions.map(({ ranges }) => ranges[0]?.count ?? 0) }));
  };
}

async function* counts(): AsyncGenerator<undefined> {
  session.connect();
  const objects = await countObjects();
  yield;
  const made = await objects();
  const promises = countPromises();
  yield;
  const promised = await promises();
  const calls = await countCalls();
  yield;
  const counted: Counted = { objects: made, promises: promised, scripts: await calls() };
  writeFileSync(process.env.BENCH_COUNTED ?? '', JSON.stringify(counted));
}

const steps = counts();
process.on('SIGUSR2', () => void steps.next());
