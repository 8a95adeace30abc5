/** The compiler API of TypeScript 5, under the name by which 'typescript' gave it. */
export { ts as default } from '@ts-morph/common';
