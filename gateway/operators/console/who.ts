import { author, rememberAuthor } from './author.ts';
import { FieldFaults, type Values } from './dialog-values.ts';
import type { FieldSpec } from './parts/field.ts';

/** Asks who makes a change and why. */

export const who = (reason = ''): FieldSpec[] => [
  { name: 'author', label: 'Who are you?', value: author(), maxlength: 100 },
  { name: 'reason', label: 'Why?', value: reason, maxlength: 500, hint: 'The audit log keeps it with your name.' },
];

/** Asks for an optional reason. */
export const whyField: FieldSpec = {
  name: 'reason',
  label: 'Why?',
  maxlength: 500,
  hint: 'The audit log keeps it. You can leave it empty.',
};

/** @throws {FieldFaults} if one of them is missing. The gateway checks their content */
export function askedOf({ author: name, reason }: Values): { author: string; reason: string } {
  const faults = {
    ...(name === undefined && { author: 'Your name is required.' }),
    ...(reason === undefined && { reason: 'A reason is required.' }),
  };
  if (name === undefined || reason === undefined) throw new FieldFaults(faults);
  rememberAuthor(name);
  return { author: name, reason };
}
