import { SCOPES } from '../limiter/credential.ts';
import { DAYS_KEPT, MAX_KEY_NAME_LENGTH } from '../limiter/key-record.ts';
import { PLAN_NAMES } from '../limiter/plans.ts';
import { type KeyRefusal, REFUSALS_SHOWN } from '../telemetry/key-refusals.ts';
import type { Schema } from './document.ts';

/** The shape of GET /limits, which the gateway answers itself. */

export const LIMITS = {
  name: 'shop',
  plan: 'free',
  minute: { limit: 60, remaining: 59, reset: 1795262401, refillPerSecond: 1 },
  day: { limit: 1_000, remaining: 899, reset: 1795271127, refillPerSecond: 1_000 / 86_400 },
  waitSeconds: 0,
  strikesLeft: 300,
  ban: null,
  bannedUntil: null,
  scope: ['read', 'write'],
  expiresAt: null,
  usage: [{ day: '2026-11-22', admitted: 101, refused: 0 }],
};

const REFUSAL: KeyRefusal = {
  at: 1795262395,
  method: 'GET',
  path: '/v1/pets',
  code: 'rate_limit_exceeded',
  limit: 'minute',
  retryAt: 1795262397,
  repeated: 0,
};

const count = (description: string, example: number, minimum = 0): Schema => ({
  description,
  type: 'integer',
  minimum,
  examples: [example],
});

function objectOf(description: string, properties: Readonly<Record<string, Schema>>, example: unknown): Schema {
  return {
    description,
    type: 'object',
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
    examples: [example],
  };
}

const bucket = (name: 'minute' | 'day'): Schema =>
  objectOf(
    `Requests per ${name}.`,
    {
      limit: count('The limit, which is what a full bucket holds.', LIMITS[name].limit, 1),
      remaining: count('Requests left.', LIMITS[name].remaining),
      reset: count('Unix second at which the bucket is full again.', LIMITS[name].reset),
      refillPerSecond: {
        description: 'Requests that come back per second.',
        type: 'number',
        exclusiveMinimum: 0,
        examples: [LIMITS[name].refillPerSecond],
      },
    },
    LIMITS[name],
  );

const BAN = { until: 1795262700, retryAfter: 300 };

const ban = objectOf(
  'The current ban.',
  {
    until: count('Unix second at which the ban ends.', BAN.until),
    retryAfter: count('Seconds after which a request will be admitted.', BAN.retryAfter, 1),
  },
  BAN,
);

const nullable = (description: string, type: 'integer' | 'string', example: unknown, more = {}): Schema => ({
  description,
  type: [type, 'null'],
  ...more,
  examples: [example],
});

const refusals: Schema = {
  description:
    'The last requests of the key that its limits, a ban or its scope refused, the newest first, as far as the gateways ' +
    'remember them. Null if they cannot be read now. Only with `refusals=true`.',
  type: ['array', 'null'],
  maxItems: REFUSALS_SHOWN,
  items: objectOf(
    'A refused request.',
    {
      at: count('Unix second at which it arrived.', REFUSAL.at),
      method: { description: 'Its method.', type: 'string', examples: [REFUSAL.method] },
      path: { description: 'Its path.', type: 'string', examples: [REFUSAL.path] },
      code: { description: 'The code of its error.', type: 'string', examples: [REFUSAL.code] },
      limit: nullable('The limit that refused it, or null.', 'string', REFUSAL.limit, {
        enum: ['minute', 'day', null],
      }),
      retryAt: nullable('Unix second from which on a retry works, or null.', 'integer', REFUSAL.retryAt, {
        minimum: 0,
      }),
      repeated: count('Refused requests like it that followed in the same minute.', REFUSAL.repeated),
    },
    REFUSAL,
  ),
  examples: [[REFUSAL]],
};

const limits = objectOf(
  'The limits and usage of a key.',
  {
    name: {
      description: 'The name that the key was issued with.',
      type: 'string',
      maxLength: MAX_KEY_NAME_LENGTH,
      examples: [LIMITS.name],
    },
    plan: { description: 'The plan of the key.', type: 'string', enum: PLAN_NAMES, examples: [LIMITS.plan] },
    minute: bucket('minute'),
    day: bucket('day'),
    waitSeconds: count('Seconds until a request will be admitted; 0 if one is admitted now.', LIMITS.waitSeconds),
    strikesLeft: count(
      'Further refusals before a ban becomes possible. Strikes are forgotten over time.',
      LIMITS.strikesLeft,
    ),
    ban: { description: 'The current ban, or null.', anyOf: [ban, { type: 'null' }], examples: [null] },
    bannedUntil: nullable('Unix second at which the current ban ends, or null.', 'integer', null, { minimum: 0 }),
    scope: {
      description: 'What the key is allowed to do.',
      type: 'array',
      minItems: 1,
      maxItems: SCOPES.length,
      items: { type: 'string', enum: SCOPES },
      examples: [LIMITS.scope],
    },
    expiresAt: nullable('When the key expires, in UTC, or null.', 'string', '2027-11-21T12:00:00.000Z', {
      format: 'date-time',
    }),
    usage: {
      description:
        'Requests admitted and refused on each of the last 36 days (UTC), the oldest first. Days without requests are left out.',
      type: 'array',
      maxItems: DAYS_KEPT,
      items: objectOf(
        'One day.',
        {
          day: { description: 'The date.', type: 'string', format: 'date', examples: ['2026-11-22'] },
          admitted: count('Requests that were admitted.', 101),
          refused: count('Requests that were refused by a limit.', 0),
        },
        LIMITS.usage[0],
      ),
      examples: [LIMITS.usage],
    },
  },
  LIMITS,
);

/** Only `refusals` can be missing. */
export const limitsSchema: Schema = { ...limits, properties: { ...(limits.properties as object), refusals } };
