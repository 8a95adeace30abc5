/** How the command line puts answers in parts together, too. */

export * from '../whole-answers.ts';
