export interface paths {
    "/pets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List animals
         * @description Animals by ascending id, a page at a time. Parameters that are not known are ignored.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listPets"];
        put?: never;
        /**
         * Add an animal
         * @description Adds an animal. With an `Idempotency-Key` it can be sent again without adding it twice.
         *
         *     The key needs the scope `write`.
         */
        post: operations["createPet"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/pets/{petId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an animal
         * @deprecated
         * @description To be removed on 5 December 2030. Use GET /pets with the status filter.
         *
         *     The key needs the scope `read`.
         */
        get: operations["getPet"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/store/orders": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List orders
         * @description Orders by ascending id, a page at a time. Parameters that are not known are ignored.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listOrders"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * See where you stand
         * @description The key's plan and both of its limits. It costs the key nothing and is answered with empty limits and during a ban too. Only the client's address pays for it, as for a request without a key. `X-RateLimit-*` are those of the key.
         */
        get: operations["getLimits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description An animal as the store gives it out.
         * @example {
         *       "id": 1,
         *       "name": "Rex",
         *       "categoryId": 1,
         *       "status": "available"
         *     }
         */
        Pet: {
            /**
             * Format: int64
             * @description Given by the service. All of int64 is used: read it exactly, or as text.
             * @example 1
             */
            id: number;
            /**
             * @description The animal's name, counted in Unicode code points.
             * @example Rex
             */
            name: string;
            /**
             * Format: int64
             * @description The category that the animal belongs to.
             * @example 1
             */
            categoryId: number;
            status: components["schemas"]["PetStatus"];
        };
        /**
         * @description An animal to be added.
         * @example {
         *       "name": "Rex",
         *       "categoryId": 1,
         *       "status": "available"
         *     }
         */
        NewPet: {
            /**
             * @description The animal's name, counted in Unicode code points.
             * @example Rex
             */
            name: string;
            /**
             * Format: int64
             * @description The category that the animal belongs to.
             * @example 1
             */
            categoryId: number;
            /** @description Whether the animal can be had; `available` when left out. */
            status?: components["schemas"]["PetStatus"];
        };
        /**
         * @description Whether an animal can be had.
         * @example available
         * @enum {string}
         */
        PetStatus: "available" | "pending" | "sold";
        /**
         * @description An order for one animal.
         * @example {
         *       "id": 1,
         *       "petId": 1,
         *       "status": "placed",
         *       "createdAt": "2026-11-21T12:00:00.000Z"
         *     }
         */
        Order: {
            /**
             * Format: int64
             * @description Given by the service. All of int64 is used: read it exactly, or as text.
             * @example 1
             */
            id: number;
            /**
             * Format: int64
             * @description The animal that is ordered.
             * @example 1
             */
            petId: number;
            status: components["schemas"]["OrderStatus"];
            /**
             * Format: date-time
             * @description When it was placed, in UTC.
             * @example 2026-11-21T12:00:00.000Z
             */
            createdAt: string;
        };
        /**
         * @description How far an order is.
         * @example placed
         * @enum {string}
         */
        OrderStatus: "placed" | "approved" | "delivered" | "cancelled";
        /**
         * @description Animals, by ascending id.
         * @example [
         *       {
         *         "id": 1,
         *         "name": "Rex",
         *         "categoryId": 1,
         *         "status": "available"
         *       }
         *     ]
         */
        Pets: components["schemas"]["Pet"][];
        /**
         * @description Orders, by ascending id.
         * @example [
         *       {
         *         "id": 1,
         *         "petId": 1,
         *         "status": "placed",
         *         "createdAt": "2026-11-21T12:00:00.000Z"
         *       }
         *     ]
         */
        Orders: components["schemas"]["Order"][];
        /**
         * @description Where a key stands.
         * @example {
         *       "name": "shop",
         *       "plan": "free",
         *       "minute": {
         *         "limit": 60,
         *         "remaining": 59,
         *         "reset": 1795262401,
         *         "refillPerSecond": 1
         *       },
         *       "day": {
         *         "limit": 1000,
         *         "remaining": 899,
         *         "reset": 1795271127,
         *         "refillPerSecond": 0.011574074074074073
         *       },
         *       "ban": null,
         *       "scope": [
         *         "read",
         *         "write"
         *       ],
         *       "expiresAt": null
         *     }
         */
        Limits: {
            /**
             * @description What the key was called when it was issued.
             * @example shop
             */
            name: string;
            /**
             * @description Its plan.
             * @example free
             * @enum {string}
             */
            plan: "free" | "pro" | "business" | "enterprise";
            /**
             * @description Requests a minute.
             * @example {
             *       "limit": 60,
             *       "remaining": 59,
             *       "reset": 1795262401,
             *       "refillPerSecond": 1
             *     }
             */
            minute: {
                /**
                 * @description How many there are when all are there.
                 * @example 60
                 */
                limit: number;
                /**
                 * @description How many are left.
                 * @example 59
                 */
                remaining: number;
                /**
                 * @description Unix second at which all are there again.
                 * @example 1795262401
                 */
                reset: number;
                /**
                 * @description How many come back each second.
                 * @example 1
                 */
                refillPerSecond: number;
            };
            /**
             * @description Requests a day.
             * @example {
             *       "limit": 1000,
             *       "remaining": 899,
             *       "reset": 1795271127,
             *       "refillPerSecond": 0.011574074074074073
             *     }
             */
            day: {
                /**
                 * @description How many there are when all are there.
                 * @example 1000
                 */
                limit: number;
                /**
                 * @description How many are left.
                 * @example 899
                 */
                remaining: number;
                /**
                 * @description Unix second at which all are there again.
                 * @example 1795271127
                 */
                reset: number;
                /**
                 * @description How many come back each second.
                 * @example 0.011574074074074073
                 */
                refillPerSecond: number;
            };
            /**
             * @description The ban that runs, or null.
             * @example null
             */
            ban: {
                /**
                 * @description Unix second at which it is over.
                 * @example 1795262700
                 */
                until: number;
                /**
                 * @description Seconds after which a request will be admitted.
                 * @example 300
                 */
                retryAfter: number;
            } | null;
            /**
             * @description What the key may do.
             * @example [
             *       "read",
             *       "write"
             *     ]
             */
            scope: ("read" | "write")[];
            /**
             * Format: date-time
             * @description When the key expires, in UTC, or null.
             * @example 2027-11-21T12:00:00.000Z
             */
            expiresAt: string | null;
        };
        /**
         * @description Every answer that is no success.
         * @example {
         *       "code": "not_found",
         *       "message": "The requested resource could not be found.",
         *       "status": 404
         *     }
         */
        Error: {
            /**
             * @description What went wrong, for programs.
             * @example not_found
             * @enum {string}
             */
            code: "invalid_request" | "invalid_parameter" | "unauthorized" | "insufficient_scope" | "not_found" | "method_not_allowed" | "request_timeout" | "conflict" | "payload_too_large" | "uri_too_long" | "unsupported_media_type" | "expectation_failed" | "rate_limit_exceeded" | "key_banned" | "headers_too_large" | "internal_error" | "bad_gateway" | "unavailable" | "gateway_timeout" | "http_version_not_supported";
            /**
             * @description What went wrong, for people; may change.
             * @example The requested resource could not be found.
             */
            message: string;
            /**
             * @description The HTTP status.
             * @example 404
             */
            status: number;
        };
    };
    responses: {
        /**
         * @description `invalid_request`: The request is malformed.
         *
         *     `invalid_parameter`: A parameter has an invalid value.
         */
        BadRequest: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "invalid_request" | "invalid_parameter";
                    /** @constant */
                    status?: 400;
                };
            };
        };
        /** @description `unauthorized`: A valid API key is required in the header Authorization: Bearer as_... */
        Unauthorized: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                "WWW-Authenticate": components["headers"]["WWW-Authenticate"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "unauthorized";
                    /** @constant */
                    status?: 401;
                };
            };
        };
        /** @description `insufficient_scope`: This API key is not allowed to do that. */
        Forbidden: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                /**
                 * @description What is wrong with the key.
                 * @example Bearer error="insufficient_scope"
                 */
                "WWW-Authenticate": "Bearer error=\"insufficient_scope\"";
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "insufficient_scope";
                    /** @constant */
                    status?: 403;
                };
            };
        };
        /** @description `request_timeout`: The request took too long to arrive. */
        RequestTimeout: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "request_timeout";
                    /** @constant */
                    status?: 408;
                };
            };
        };
        /** @description `conflict`: The request conflicts with the current state. */
        Conflict: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "conflict";
                    /** @constant */
                    status?: 409;
                };
            };
        };
        /** @description `payload_too_large`: The request body is too large. */
        PayloadTooLarge: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "payload_too_large";
                    /** @constant */
                    status?: 413;
                };
            };
        };
        /** @description `uri_too_long`: The request target is too long. */
        URITooLong: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "uri_too_long";
                    /** @constant */
                    status?: 414;
                };
            };
        };
        /** @description `unsupported_media_type`: The body must be uncompressed application/json. */
        UnsupportedMediaType: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "unsupported_media_type";
                    /** @constant */
                    status?: 415;
                };
            };
        };
        /** @description `expectation_failed`: The only expectation that can be met is 100-continue. */
        ExpectationFailed: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "expectation_failed";
                    /** @constant */
                    status?: 417;
                };
            };
        };
        /**
         * @description `rate_limit_exceeded`: Rate limit exceeded. Retry after the time in the Retry-After header.
         *
         *     `key_banned`: This API key is banned for a while. Retry after the time in Retry-After.
         */
        TooManyRequests: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                "Retry-After": components["headers"]["Retry-After"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "rate_limit_exceeded" | "key_banned";
                    /** @constant */
                    status?: 429;
                };
            };
        };
        /** @description `headers_too_large`: The request headers are too large. */
        RequestHeaderFieldsTooLarge: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "headers_too_large";
                    /** @constant */
                    status?: 431;
                };
            };
        };
        /** @description `internal_error`: Something went wrong on our side. */
        InternalServerError: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "internal_error";
                    /** @constant */
                    status?: 500;
                };
            };
        };
        /** @description `bad_gateway`: The store could not be reached or gave no usable answer. */
        BadGateway: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "bad_gateway";
                    /** @constant */
                    status?: 502;
                };
            };
        };
        /** @description `unavailable`: The service is unavailable for the moment. */
        ServiceUnavailable: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                /**
                 * @description Seconds after which another try is worth it; not on every 503.
                 * @example 1
                 */
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "unavailable";
                    /** @constant */
                    status?: 503;
                };
            };
        };
        /** @description `gateway_timeout`: The store took too long to answer. */
        GatewayTimeout: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "gateway_timeout";
                    /** @constant */
                    status?: 504;
                };
            };
        };
        /** @description `http_version_not_supported`: Only HTTP/1.1 and HTTP/1.0 are spoken here. */
        HTTPVersionNotSupported: {
            headers: {
                "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                RateLimit: components["headers"]["RateLimit"];
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Server-Timing": components["headers"]["Server-Timing"];
                /**
                 * @description Where the error is explained (RFC 8288).
                 * @example </docs#error-rate_limit_exceeded>; rel="help"
                 */
                Link?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {string} */
                    code?: "http_version_not_supported";
                    /** @constant */
                    status?: 505;
                };
            };
        };
    };
    parameters: {
        /** @description How many to give at most. */
        limit: number;
        /** @description Only those with a greater id: the next page, as the Link header gives it. */
        after: number;
        /** @description An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other value is replaced by a new id, never refused. */
        requestId: string;
    };
    requestBodies: never;
    headers: {
        /**
         * @description The limit that applies: of the day and the minute the one with the fewest requests left, on 429 the one that waits longest; without a valid key, that of the client's address.
         * @example 60
         */
        "X-RateLimit-Limit": number;
        /**
         * @description Requests that are left of it.
         * @example 59
         */
        "X-RateLimit-Remaining": number;
        /**
         * @description Unix second at which the whole limit is there again. On 429 the end of Retry-After: when to send the request again.
         * @example 1795262400
         */
        "X-RateLimit-Reset": number;
        /**
         * @description All limits (draft-ietf-httpapi-ratelimit-headers-11): q requests in w seconds. A gateway can be set not to send it.
         * @example "minute";q=60;w=60, "day";q=1000;w=86400
         */
        "RateLimit-Policy": string;
        /**
         * @description What is left of each: r requests within t seconds. A client that waits t/r between requests, or t where r is 0, keeps to all limits. On 429 only the limit that refused, with the t of Retry-After. A gateway can be set not to send it.
         * @example "minute";r=59;t=59;store-limit=60;store-remaining=59;store-reset=1, "day";r=999;t=86314
         */
        RateLimit: string;
        /**
         * @description The request's id: the client's own where it is fit, else a new one.
         * @example 1d9d2e71-70ef-42a0-853b-af79a5ee6eab
         */
        "X-Request-Id": string;
        /**
         * @description Where the time went until the answer began, in milliseconds (W3C Server Timing), if the gateway is set to send it.
         * @example decision;dur=0.812, waiting;dur=0.094, core;dur=2.301
         */
        "Server-Timing": string;
        /**
         * @description Seconds after which the request will be admitted: its place in line behind the others that were refused, or the end of a ban.
         * @example 1
         */
        "Retry-After": number;
        /**
         * @description How to authenticate.
         * @example Bearer
         */
        "WWW-Authenticate": "Bearer";
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    listPets: {
        parameters: {
            query?: {
                /** @description How many to give at most. */
                limit?: components["parameters"]["limit"];
                /** @description Only those with a greater id: the next page, as the Link header gives it. */
                after?: components["parameters"]["after"];
                /** @description Only animals of this status. */
                status?: components["schemas"]["PetStatus"];
            };
            header?: {
                /** @description An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other value is replaced by a new id, never refused. */
                "X-Request-Id"?: components["parameters"]["requestId"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of the animals. */
            200: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description Where the next page is (RFC 8288). Without it, this was the last one.
                     * @example </v1/pets?limit=20&after=20>; rel="next"
                     */
                    Link?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "id": 1,
                     *         "name": "Rex",
                     *         "categoryId": 1,
                     *         "status": "available"
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["Pets"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            414: components["responses"]["URITooLong"];
            417: components["responses"]["ExpectationFailed"];
            429: components["responses"]["TooManyRequests"];
            431: components["responses"]["RequestHeaderFieldsTooLarge"];
            500: components["responses"]["InternalServerError"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["ServiceUnavailable"];
            504: components["responses"]["GatewayTimeout"];
            505: components["responses"]["HTTPVersionNotSupported"];
        };
    };
    createPet: {
        parameters: {
            query?: never;
            header?: {
                /** @description The same key and the same body get the first answer again for 24 hours; another body gets 409. */
                "Idempotency-Key"?: string;
                /** @description An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other value is replaced by a new id, never refused. */
                "X-Request-Id"?: components["parameters"]["requestId"];
            };
            path?: never;
            cookie?: never;
        };
        /** @description Add an animal */
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "Rex",
                 *       "categoryId": 1,
                 *       "status": "available"
                 *     }
                 */
                "application/json": components["schemas"]["NewPet"];
            };
        };
        responses: {
            /** @description The animal was added. */
            201: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": 1,
                     *       "name": "Rex",
                     *       "categoryId": 1,
                     *       "status": "available"
                     *     }
                     */
                    "application/json": components["schemas"]["Pet"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["PayloadTooLarge"];
            414: components["responses"]["URITooLong"];
            415: components["responses"]["UnsupportedMediaType"];
            417: components["responses"]["ExpectationFailed"];
            429: components["responses"]["TooManyRequests"];
            431: components["responses"]["RequestHeaderFieldsTooLarge"];
            500: components["responses"]["InternalServerError"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["ServiceUnavailable"];
            504: components["responses"]["GatewayTimeout"];
            505: components["responses"]["HTTPVersionNotSupported"];
        };
    };
    getPet: {
        parameters: {
            query?: never;
            header?: {
                /** @description An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other value is replaced by a new id, never refused. */
                "X-Request-Id"?: components["parameters"]["requestId"];
            };
            path: {
                /** @description The animal's id. */
                petId: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The animal. */
            200: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset: "Thu, 05 Dec 2030 00:00:00 GMT";
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link: "</v1/pets>; rel=\"successor-version\"";
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": 1,
                     *       "name": "Rex",
                     *       "categoryId": 1,
                     *       "status": "available"
                     *     }
                     */
                    "application/json": components["schemas"]["Pet"];
                };
            };
            /**
             * @description `invalid_request`: The request is malformed.
             *
             *     `invalid_parameter`: A parameter has an invalid value.
             */
            400: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link?: "</v1/pets>; rel=\"successor-version\"";
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation?: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset?: "Thu, 05 Dec 2030 00:00:00 GMT";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"] & {
                        /** @enum {string} */
                        code?: "invalid_request" | "invalid_parameter";
                        /** @constant */
                        status?: 400;
                    };
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            /** @description `not_found`: The requested resource could not be found. */
            404: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link: "</v1/pets>; rel=\"successor-version\"";
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset: "Thu, 05 Dec 2030 00:00:00 GMT";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"] & {
                        /** @enum {string} */
                        code?: "not_found";
                        /** @constant */
                        status?: 404;
                    };
                };
            };
            408: components["responses"]["RequestTimeout"];
            414: components["responses"]["URITooLong"];
            417: components["responses"]["ExpectationFailed"];
            429: components["responses"]["TooManyRequests"];
            431: components["responses"]["RequestHeaderFieldsTooLarge"];
            /** @description `internal_error`: Something went wrong on our side. */
            500: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link?: "</v1/pets>; rel=\"successor-version\"";
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation?: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset?: "Thu, 05 Dec 2030 00:00:00 GMT";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"] & {
                        /** @enum {string} */
                        code?: "internal_error";
                        /** @constant */
                        status?: 500;
                    };
                };
            };
            /** @description `bad_gateway`: The store could not be reached or gave no usable answer. */
            502: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link: "</v1/pets>; rel=\"successor-version\"";
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset: "Thu, 05 Dec 2030 00:00:00 GMT";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"] & {
                        /** @enum {string} */
                        code?: "bad_gateway";
                        /** @constant */
                        status?: 502;
                    };
                };
            };
            /** @description `unavailable`: The service is unavailable for the moment. */
            503: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link?: "</v1/pets>; rel=\"successor-version\"";
                    /**
                     * @description Seconds after which another try is worth it; not on every 503.
                     * @example 1
                     */
                    "Retry-After"?: number;
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation?: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset?: "Thu, 05 Dec 2030 00:00:00 GMT";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"] & {
                        /** @enum {string} */
                        code?: "unavailable";
                        /** @constant */
                        status?: 503;
                    };
                };
            };
            /** @description `gateway_timeout`: The store took too long to answer. */
            504: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description What to use in its place (RFC 8288).
                     * @example </v1/pets>; rel="successor-version"
                     */
                    Link: "</v1/pets>; rel=\"successor-version\"";
                    /**
                     * @description Since when the operation is deprecated, as a Unix second (RFC 9745).
                     * @example @1795132800
                     */
                    Deprecation: "@1795132800";
                    /**
                     * @description When it will be removed (RFC 8594).
                     * @example Thu, 05 Dec 2030 00:00:00 GMT
                     */
                    Sunset: "Thu, 05 Dec 2030 00:00:00 GMT";
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"] & {
                        /** @enum {string} */
                        code?: "gateway_timeout";
                        /** @constant */
                        status?: 504;
                    };
                };
            };
            505: components["responses"]["HTTPVersionNotSupported"];
        };
    };
    listOrders: {
        parameters: {
            query?: {
                /** @description How many to give at most. */
                limit?: components["parameters"]["limit"];
                /** @description Only those with a greater id: the next page, as the Link header gives it. */
                after?: components["parameters"]["after"];
                /** @description Only orders of this status. */
                status?: components["schemas"]["OrderStatus"];
            };
            header?: {
                /** @description An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other value is replaced by a new id, never refused. */
                "X-Request-Id"?: components["parameters"]["requestId"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of the orders. */
            200: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    /**
                     * @description Where the next page is (RFC 8288). Without it, this was the last one.
                     * @example </v1/store/orders?limit=20&after=20>; rel="next"
                     */
                    Link?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "id": 1,
                     *         "petId": 1,
                     *         "status": "placed",
                     *         "createdAt": "2026-11-21T12:00:00.000Z"
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["Orders"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            414: components["responses"]["URITooLong"];
            417: components["responses"]["ExpectationFailed"];
            429: components["responses"]["TooManyRequests"];
            431: components["responses"]["RequestHeaderFieldsTooLarge"];
            500: components["responses"]["InternalServerError"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["ServiceUnavailable"];
            504: components["responses"]["GatewayTimeout"];
            505: components["responses"]["HTTPVersionNotSupported"];
        };
    };
    getLimits: {
        parameters: {
            query?: never;
            header?: {
                /** @description An id to find the request by, in the answer and in every log: 1 to 64 letters, digits, `_`, `.` or `-`. Any other value is replaced by a new id, never refused. */
                "X-Request-Id"?: components["parameters"]["requestId"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Where the key stands. */
            200: {
                headers: {
                    "X-RateLimit-Limit": components["headers"]["X-RateLimit-Limit"];
                    "X-RateLimit-Remaining": components["headers"]["X-RateLimit-Remaining"];
                    "X-RateLimit-Reset": components["headers"]["X-RateLimit-Reset"];
                    "RateLimit-Policy": components["headers"]["RateLimit-Policy"];
                    RateLimit: components["headers"]["RateLimit"];
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Server-Timing": components["headers"]["Server-Timing"];
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "shop",
                     *       "plan": "free",
                     *       "minute": {
                     *         "limit": 60,
                     *         "remaining": 59,
                     *         "reset": 1795262401,
                     *         "refillPerSecond": 1
                     *       },
                     *       "day": {
                     *         "limit": 1000,
                     *         "remaining": 899,
                     *         "reset": 1795271127,
                     *         "refillPerSecond": 0.011574074074074073
                     *       },
                     *       "ban": null,
                     *       "scope": [
                     *         "read",
                     *         "write"
                     *       ],
                     *       "expiresAt": null
                     *     }
                     */
                    "application/json": components["schemas"]["Limits"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["RequestTimeout"];
            414: components["responses"]["URITooLong"];
            417: components["responses"]["ExpectationFailed"];
            429: components["responses"]["TooManyRequests"];
            431: components["responses"]["RequestHeaderFieldsTooLarge"];
            500: components["responses"]["InternalServerError"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["ServiceUnavailable"];
            504: components["responses"]["GatewayTimeout"];
            505: components["responses"]["HTTPVersionNotSupported"];
        };
    };
}
