import type { Route } from '../shared/http/service.ts';
import type { Scope } from './limiter/credential.ts';

/** An operation that clients may call. Any other is refused. */
export interface GatewayRoute extends Route {
  /** The operation's name in the OpenAPI document, for logs. */
  readonly operation: string;
  /** The scope that a secret needs. Undefined if any secret will do. */
  readonly scope?: Scope;
  /** Whether the operation takes a body. Other operations refuse one. */
  readonly takesBody: boolean;
  /** Whether a GET may upgrade to WebSocket here. Elsewhere an upgrade is ignored. */
  readonly webSocket?: boolean;
  /** Headers on every response of a deprecated operation, as a flat list. */
  readonly deprecation?: readonly string[];
}

/** Deprecation is a structured-field date (RFC 9745), Sunset an HTTP-date (RFC 8594). */
const GET_PET_DEPRECATION = [
  'Deprecation',
  '@1795132800',
  'Sunset',
  'Thu, 05 Dec 2030 00:00:00 GMT',
  'Link',
  '</v1/pets>; rel="successor-version"',
];

/** The caller's limit status. The gateway itself answers this operation. */
export const LIMITS_ROUTE: GatewayRoute = {
  operation: 'getLimits',
  method: 'GET',
  path: '/v1/limits',
  takesBody: false,
};

export const ROUTES: readonly GatewayRoute[] = [
  { operation: 'listPets', scope: 'read', method: 'GET', path: '/v1/pets', takesBody: false },
  { operation: 'createPet', scope: 'write', method: 'POST', path: '/v1/pets', takesBody: true },
  {
    operation: 'getPet',
    scope: 'read',
    method: 'GET',
    path: '/v1/pets/{petId}',
    takesBody: false,
    deprecation: GET_PET_DEPRECATION,
  },
  { operation: 'listOrders', scope: 'read', method: 'GET', path: '/v1/store/orders', takesBody: false },
  LIMITS_ROUTE,
];

/** The path of the first GET operation without path parameters that the core answers. */
export const CORE_READ: string | undefined = ROUTES.find(
  (route) => route.method === 'GET' && !route.path.includes('{') && route !== LIMITS_ROUTE,
)?.path;
