/** What to look for in a text that somebody pasted: the secret of a key never leaves the browser. */

export * from '../clients.ts';
