/** The command line uses the same functions. */

export * from '../clients.ts';
