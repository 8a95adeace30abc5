/**
 * A route table: which operation a method and a path mean. Path templates are written as OpenAPI writes them; a `{name}`
 * stands for one non-empty segment. Paths are compared as they arrive, so each has exactly one spelling.
 */

export interface Route {
  readonly method: string;
  readonly path: string;
}

export interface Match<R extends Route> {
  readonly route: R;
  /** The segments that stood for `{name}`s, in order, as they arrived. */
  readonly params: readonly string[];
}

export interface Router<R extends Route> {
  find(method: string, path: string): Match<R> | undefined;
  /** The methods a path allows, as the Allow header lists them (RFC 9110 §10.2.1); empty for an unknown path. */
  allowed(path: string): string[];
}

/** Builds the router once, so that finding costs one lookup for fixed paths and a few comparisons for the others. */
export function createRouter<R extends Route>(routes: readonly R[]): Router<R> {
  const compiled = routes.map((route) => ({ route, pattern: toPattern(route.path) }));
  const fixed = new Map(
    routes.filter((route) => !route.path.includes('{')).map((route) => [nameOf(route), { route, params: [] }]),
  );

  function find(method: string, path: string): Match<R> | undefined {
    const wanted = method === 'HEAD' ? 'GET' : method;
    const exact = fixed.get(`${wanted} ${path}`);
    if (exact !== undefined) return exact;
    for (const { route, pattern } of compiled) {
      const found = route.method === wanted ? pattern.exec(path) : null;
      if (found !== null) return { route, params: found.slice(1) };
    }
    return undefined;
  }

  function allowed(path: string): string[] {
    const methods = compiled.filter(({ pattern }) => pattern.test(path)).map(({ route }) => route.method);
    return methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
  }

  return { find, allowed };
}

const nameOf = (route: Route): string => `${route.method} ${route.path}`;

function toPattern(template: string): RegExp {
  const source = template.replaceAll(/[.*+?^$()|[\]\\]/g, '\\$&').replaceAll(/\{\w+\}/g, '([^/]+)');
  return new RegExp(`^${source}$`);
}
