import type { Route } from '../shared/routes.ts';

/** An operation that clients may reach; there are no others. */
export interface GatewayRoute extends Route {
  /** The operation's name in the interface document, for logs. */
  readonly operation: string;
  /** Whether the operation takes a body. Any other body is refused. */
  readonly takesBody: boolean;
  /** Whether a client may go on as a WebSocket here, with an upgrade of its GET; anywhere else an upgrade is passed over. */
  readonly webSocket?: boolean;
  /** Headers on every answer of a deprecated operation, as a flat list. */
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

/** Where the caller stands. The gateway answers it itself; the core never sees it. */
export const LIMITS_ROUTE: GatewayRoute = {
  operation: 'getLimits',
  method: 'GET',
  path: '/v1/limits',
  takesBody: false,
};

export const ROUTES: readonly GatewayRoute[] = [
  { operation: 'listPets', method: 'GET', path: '/v1/pets', takesBody: false },
  { operation: 'createPet', method: 'POST', path: '/v1/pets', takesBody: true },
  {
    operation: 'getPet',
    method: 'GET',
    path: '/v1/pets/{petId}',
    takesBody: false,
    deprecation: GET_PET_DEPRECATION,
  },
  { operation: 'listOrders', method: 'GET', path: '/v1/store/orders', takesBody: false },
  LIMITS_ROUTE,
];
