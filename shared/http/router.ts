import { HttpError, methodNotAllowed } from './errors.ts';

/**
 * A route table: maps a method and a path to an operation. Path templates use OpenAPI syntax; a `{name}` matches one
 * non-empty segment. Paths are compared as received, so each has exactly one spelling.
 */

export interface Route {
  readonly method: string;
  readonly path: string;
}

interface Match<R> {
  readonly route: R;
  /** The segments that the `{name}`s match, in order and as received. */
  readonly params: readonly string[];
}

/** Builds the router once. A lookup of a fixed path is then one map access, any other a few comparisons. */
export function createRouter<R extends Route>(routes: readonly R[]) {
  const compiled = routes.map((route) => ({ route, pattern: toPattern(route.path) }));
  const fixed = new Map<string, Match<R>>(
    routes.filter(({ path }) => !path.includes('{')).map((route) => [nameOf(route), { route, params: [] }]),
  );

  /** The operation; undefined if there is none. */
  function lookUp(method: string, path: string): Match<R> | undefined {
    const wanted = method === 'HEAD' ? 'GET' : method;
    const exact = fixed.get(`${wanted} ${path}`);
    if (exact !== undefined) return exact;
    for (const { route, pattern } of compiled) {
      const found = route.method === wanted ? pattern.exec(path) : null;
      if (found !== null) return { route, params: found.slice(1) };
    }
    return undefined;
  }

  /** @throws {HttpError} 404 for an unknown path; 405 with the allowed methods (RFC 9110 §10.2.1) for another method */
  function find(method: string, path: string): Match<R> {
    const match = lookUp(method, path);
    if (match !== undefined) return match;
    const methods = allowed(path);
    throw methods === undefined ? new HttpError('not_found') : methodNotAllowed(methods);
  }

  /** The methods of a path, as in Allow; undefined for an unknown path. */
  function allowed(path: string): string | undefined {
    const methods = compiled.filter(({ pattern }) => pattern.test(path)).map(({ route }) => route.method);
    const all = methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    return all.length === 0 ? undefined : all.join(', ');
  }

  return { find, lookUp, allowed };
}

const nameOf = (route: Route): string => `${route.method} ${route.path}`;

function toPattern(template: string): RegExp {
  const source = template.replaceAll(/[.*+?^$()|[\]\\]/g, '\\$&').replaceAll(/\{\w+\}/g, '([^/]+)');
  return new RegExp(`^${source}$`);
}
