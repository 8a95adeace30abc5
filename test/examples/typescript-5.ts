/** The compiler API of TypeScript 5 as a default export, as in the package 'typescript' of that version. */
export { ts as default } from '@ts-morph/common';
