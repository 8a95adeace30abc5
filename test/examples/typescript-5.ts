/** The compiler API of TypeScript 5, exported as the package 'typescript' did. */
export { ts as default } from '@ts-morph/common';
