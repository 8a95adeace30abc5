import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './root.ts';

/** Reads deploy/Dockerfile as far as the tests need it: its stages and their instructions. */

export interface Instruction {
  /** The name in capitals. */
  readonly name: string;
  /** Everything after the name, on one line, without flags. */
  readonly text: string;
  /** Flags: `--from=dependencies` becomes `from: dependencies`. */
  readonly flags: Readonly<Record<string, string>>;
}

export interface Stage {
  readonly name: string;
  /** An image, or an earlier stage. Build arguments are empty, as they are by default. */
  readonly from: string;
  readonly instructions: readonly Instruction[];
}

/** @throws {Error} for a line that it cannot read */
export function readDockerfile(): readonly Stage[] {
  const stages: (Stage & { instructions: Instruction[] })[] = [];
  for (const instruction of instructionsOf(readFileSync(join(ROOT, 'deploy/Dockerfile'), 'utf8'))) {
    const [, from = '', name = ''] = /^(\S+) AS (\S+)$/.exec(instruction.text) ?? [];
    if (instruction.name === 'FROM') stages.push({ name, from: from.replaceAll(/\$\{\w+\}/g, ''), instructions: [] });
    else if (instruction.name === 'ARG' && stages.length === 0 && instruction.text.endsWith('=')) continue;
    else if (stages.length === 0)
      throw new Error(`${instruction.name} ${instruction.text} is not supported before FROM.`);
    else stages.at(-1)?.instructions.push(instruction);
  }
  return stages;
}

function instructionsOf(text: string): Instruction[] {
  const lines = text
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, '')
    .split('\n');
  return lines.filter((line) => line.trim() !== '').map(parse);
}

function parse(line: string): Instruction {
  const [, name = '', flagged = '', text = ''] = /^([A-Z]+) ((?:--\S+ )*)(.*)$/.exec(line) ?? [];
  if (name === '') throw new Error(`Not a Dockerfile instruction: ${line}`);
  const flags = [...flagged.matchAll(/--([\w-]+)=(\S+)/g)].map(([, flag = '', value = '']) => [flag, value]);
  return { name, text, flags: Object.fromEntries(flags) as Record<string, string> };
}

/** The instructions of a stage and of its base stages, in order. */
export function instructionsFor(stages: readonly Stage[], target: string): Instruction[] {
  const stage = stageOf(stages, target);
  const isStage = stages.some(({ name }) => name === stage.from);
  return [...(isStage ? instructionsFor(stages, stage.from) : []), ...stage.instructions];
}

/** @throws {Error} if there is no such stage */
export function stageOf(stages: readonly Stage[], target: string): Stage {
  const stage = stages.find(({ name }) => name === target);
  if (stage === undefined) throw new Error(`The Dockerfile has no stage ${target}.`);
  return stage;
}

/** An image's settings: the last instruction of each name, and every ENV. */
export interface ImageSettings {
  readonly command: readonly string[];
  readonly health: readonly string[];
  readonly user: string;
  readonly environment: Readonly<Record<string, string>>;
}

export function imageSettings(stages: readonly Stage[], target: string): ImageSettings {
  const instructions = instructionsFor(stages, target);
  const last = (wanted: string) => instructions.findLast(({ name }) => name === wanted)?.text ?? '';
  const environment = instructions.filter(({ name }) => name === 'ENV').map(({ text }) => text.split(/=(.*)/s, 2));
  return {
    command: JSON.parse(last('CMD')) as string[],
    health: JSON.parse(last('HEALTHCHECK').replace(/^CMD /, '')) as string[],
    user: last('USER'),
    environment: Object.fromEntries(environment) as Record<string, string>,
  };
}
