import type { CodeSample } from './samples.ts';

/** The parts of OpenAPI 3.1 that this API's description uses. */

export type Ref = Readonly<Record<'$ref', string>>;

/** A JSON Schema (draft 2020-12). */
export type Schema = Readonly<Record<string, unknown>>;

export interface Header {
  readonly description: string;
  /** Whether all such answers have it, or only some. */
  readonly required: boolean;
  readonly schema: Schema;
  readonly example: string | number;
}

export interface Parameter {
  readonly name: string;
  readonly in: 'query' | 'path' | 'header';
  readonly required: boolean;
  readonly description: string;
  /** The schema holds the example, because a separate one would be filled into the try-it panels. */
  readonly schema: Schema;
}

export interface MediaType {
  readonly schema: Schema;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}

export type Content = Readonly<Record<'application/json', MediaType>>;

export interface Response {
  readonly description: string;
  readonly headers: Readonly<Record<string, Header | Ref>>;
  /** Undefined without a body. */
  readonly content?: Content;
}

export type Responses = Readonly<Record<string, Response | Ref>>;

export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly deprecated?: true;
  readonly parameters: readonly (Parameter | Ref)[];
  readonly requestBody?: { readonly required: boolean; readonly description: string; readonly content: Content };
  readonly responses: Responses;
  readonly 'x-codeSamples'?: readonly CodeSample[];
  /** False disables the try-it panel of the operation. */
  readonly 'x-try-it-out'?: false;
}

export interface Document {
  readonly openapi: '3.1.0';
  readonly info: Readonly<Record<string, unknown>>;
  readonly servers: readonly { readonly url: string; readonly description: string }[];
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly headers: Readonly<Record<string, Header>>;
    readonly parameters: Readonly<Record<string, Parameter>>;
    readonly responses: Readonly<Record<string, Response>>;
    readonly securitySchemes: Readonly<Record<string, unknown>>;
  };
  /** Answers to an unknown path or method. */
  readonly 'x-no-operation': Responses;
}

export const refTo = (kind: string, name: string): Ref => ({ $ref: `#/components/${kind}/${name}` });
