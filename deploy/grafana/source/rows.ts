import { CLIENT_ROWS } from './clients.ts';
import { DEPENDENCY_ROWS } from './dependencies.ts';
import { SATURATION_ROWS } from './saturation.ts';

/** The questions that on-call asks, in order, each with the panels that answer it. */
export const ROWS = [...CLIENT_ROWS, ...DEPENDENCY_ROWS, ...SATURATION_ROWS];
