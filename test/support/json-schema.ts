import { Ajv2020 } from 'ajv/dist/2020.js';

/** As near as a double comes to it: 2^63-1 itself is read as 2^63. */
const isInt64 = (value: number): boolean => Number.isInteger(value) && value >= -(2 ** 63) && value <= 2 ** 63;

/** A validator for JSON Schema as OpenAPI 3.1 uses it, with members of its own beside the schemas. */
export const schemaValidator = (): Ajv2020 =>
  new Ajv2020({
    allErrors: true,
    strictSchema: false,
    formats: { int64: { type: 'number', validate: isInt64 }, 'date-time': (text) => !Number.isNaN(Date.parse(text)) },
  });
