/** The compiler API of TypeScript 5, exported like the package 'typescript' did. */
export { ts as default } from '@ts-morph/common';
