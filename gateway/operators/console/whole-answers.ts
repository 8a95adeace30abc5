/** The command line uses the same functions. */

export * from '../whole-answers.ts';
