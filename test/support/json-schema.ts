import { installPackages, TOOLS } from './node-packages.ts';

installPackages(TOOLS);
const { Ajv2020 } = await import('ajv/dist/2020.js');

/** This bound is as exact as a double allows, because 2^63-1 is read as 2^63. */
const isInt64 = (value: number): boolean => Number.isInteger(value) && value >= -(2 ** 63) && value <= 2 ** 63;

/** A validator for JSON Schema as in OpenAPI 3.1, with OpenAPI's own members. */
export const schemaValidator = () =>
  new Ajv2020({
    allErrors: true,
    strictSchema: false,
    allowUnionTypes: true,
    formats: {
      int64: { type: 'number', validate: isInt64 },
      'date-time': (text) => !Number.isNaN(Date.parse(text)),
      date: (text) => /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)),
    },
  });
