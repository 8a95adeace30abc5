/** A deliberate bug in the product, and the test that must fail because of it. */
export interface Break {
  readonly file: string;
  /** Occurs exactly once in the file. */
  readonly code: string;
  readonly broken: string;
  /** A part of the path of a test file, below test/. */
  readonly test: string;
}

const row = (file: string, test: string, code: string, broken: string): Break => ({ file, test, code, broken });

const LUA = 'gateway/limiter/decide.lua';
const CLIENTS = 'gateway/limiter/clients.ts';
const REFUSALS = 'gateway/limiter/refusals.ts';
const CONNECTION = 'shared/http/connection.ts';
const HEAD = 'shared/http/request-head.ts';
const CALL = 'gateway/upstream/call.ts';
const FAULTS = 'gateway/upstream/faults.ts';
const WIRE = 'gateway/upstream/wire.ts';
const LIMIT = 'gateway/upstream/concurrency-limit.ts';
const HEADERS = 'gateway/upstream/headers.ts';
const ACCESS = 'gateway/operators/api/access.ts';

/** Breaks of the limiter are also in test/simulation/breaks.ts. */
export const BREAKS: readonly Break[] = [
  // The decision.
  row('gateway/limiter/bucket.ts', 'limiter/rules', 'Math.max(...Array.from({ length: 20 }, offset))', 'offset()'),
  row(CLIENTS, 'faults/charges', 'const owed = tokensOf(decidedHere) - tokensOf(verdict);', 'const owed = 0;'),
  row('gateway/upstream/forwarder.ts', 'gateway/forwarding', "kind === 'write' ? this.#failing() : []", '[]'),
  row(LUA, 'limiter/model', "if disabled and disabled ~= '' and disabled ~= '0' then", 'if false then'),
  row(LUA, 'limiter/model', 'if ends_at > 0 and ends_at <= now then', 'if false then'),
  row(LUA, 'operators/secrets', "if networks ~= '-' and not is_within(networks, address) then", 'if false then'),
  row(LUA, 'limiter/model', 'minute_tokens >= 1 and day_tokens >= 1', 'minute_tokens >= 1'),
  row(LUA, 'limiter/model', 'minute_tokens - 1, day_tokens - 1, nil', 'minute_tokens - 1, day_tokens, nil'),
  row(LUA, 'limiter/rules', "and read_count(call('HGET', key, 'bans')) + 1 or 1", 'and 1 or 1'),
  row(LUA, 'limiter/model', 'then as_of, shift = clock, as_of - clock end', 'then as_of = clock end'),
  row(LUA, 'limiter/model', "is_ignored = plan.mode == 'shadow' and banned_until > now", 'is_ignored = false'),
  row(LUA, 'limiter/model', 'if strikes - now > ceiling then', 'if false then'),
  row(LUA, 'limiter/charges', 'if reset_at and charge[5] <= reset_at then', 'if false then'),
  row(CLIENTS, 'limiter/clients', 'Math.abs(ahead) < LATE ? ahead > 0 : at > than.at', 'false ? false : at > than.at'),
  row('gateway/pipeline/pipeline.ts', 'faults/redis', 'else if (exchange.credential)', 'else if (exchange.tunnel)'),
  row('gateway/limiter/newcomers.ts', 'limiter/address-allowance', 'Math.max(entry.asOf - now, 0)', '0'),
  row(
    LUA,
    'limiter/usage',
    'more_refused = retry_at, now + min(struck, most), more_refused + 1',
    'more_refused = retry_at, now, 9',
  ),
  row(
    'gateway/pipeline/pipeline.ts',
    'operators/requests.test',
    'if (!exchange.isBeingDecided) observe(exchange);',
    'observe(exchange);',
  ),
  row('gateway/stores/redis/peers.ts', 'operators/requests.test', '(await redis.time())[0]', 'Date.now() / 1_000'),
  row('gateway/operators/cli/program.ts', 'operators/backup-output', ' && !session.mustBeRead', ''),
  row('gateway/stores/redis/peers.ts', 'operators/gateways', ' && startOf(one) * 1_000 >= seenAt', ''),
  row('gateway/operators/api/health.ts', 'operators/gateways', '(this.#found.has(about) ? [] : done)', 'done'),
  row(
    'gateway/serve-operators.ts',
    'operators/doctor.test',
    'cores: () => checkCores(settings.CORE_URL, coreToken?.(), CORE_READ)',
    'cores: () => []',
  ),
  row(REFUSALS, 'limiter/model', 'if (struck <= most) return', 'if (struck < most) return'),
  row(REFUSALS, 'limiter/model', 'if (limit <= before) return line;', 'return line;'),
  row('gateway/operators/api/health.ts', 'operators/doctor.test', '?? late(about)', '?? []'),
  row('gateway/serve-operators.ts', 'operators/gateways', 'gateways: () => checkPeers(peers),', ''),
  row('gateway/operators/api/plans.ts', 'gateway/plans', 'await deps.planCache.begin();', ''),
  row('gateway/operators/api/requests.ts', 'operators/requests', " && outcome !== 'refused')", ' && false)'),
  row('gateway/operators/api/doctor.ts', 'operators/doctor.test', 'health.note(about, found);', ''),
  row('gateway/upstream/wire.ts', 'gateway/large-answers', '? Buffer.from(bytes) : bytes', '? bytes : bytes'),
  row('gateway/upstream/connect.ts', 'gateway/tls.test', 'new NotConnected(fault), null', 'fault, null'),
  row('gateway/stores/key-state.ts', 'operators/edited-by-hand', 'Math.max(...bansSet(hash))', '0'),
  row(
    'gateway/stores/redis/connection.ts',
    'faults/sentinel',
    'if (isWatched) endWhenDeposed',
    'if (!isWatched) endWhenDeposed',
  ),
  row(
    'gateway/stores/redis/storage.ts',
    'faults/sentinel',
    'const hasLeft = before?.id === id',
    'const hasLeft = before?.id !== id',
  ),
  row('gateway/stores/redis/storage.ts', 'gateway/confirmed-changes', '&& wasFull) await', '&& !wasFull) await'),
  row('gateway/stores/redis/step.ts', 'gateway/confirmed-changes', 'wasFull: script === URGENT', 'wasFull: false'),
  row('gateway/stores/redis/peers.ts', 'operators/redis-away', '> 0 || hungMs > HUNG_MS', '> 0'),
  row('gateway/operators/api/key-view.ts', 'operators/bans', 'Date.parse(began) >= since', 'true'),
  row('gateway/operators/api/usage.ts', 'operators/bans', 'isKnown ? 0 : undefined', '0'),
  row('gateway/primary/changes.ts', 'gateway/confirmed-elsewhere', 'announce(made), notify(made)', 'announce(made)'),
  row(
    'gateway/stores/redis/peers.ts',
    'gateway/confirmed-elsewhere',
    'Math.max(since, now - FORGOTTEN_AFTER_SECONDS)',
    'now - FORGOTTEN_AFTER_SECONDS',
  ),
  row('gateway/telemetry/exchange.ts', 'operators/requests.test', 'sentAt || endedAt', 'sentAt'),
  row(
    'gateway/telemetry/recent-requests.ts',
    'operators/requests.test',
    'error?.code ?? seen.coreCode;',
    'error?.code;',
  ),
  row(
    'gateway/upstream/check-cores.ts',
    'operators/doctor.test',
    'BOTH_WITHIN_MS - ms, headers',
    'TIMEOUT_MS, headers',
  ),
  row('gateway/telemetry/recent-requests.ts', 'operators/requests.test', ' && before.last.place === before.place', ''),
  row('gateway/telemetry/recent-requests.ts', 'operators/requests.test', 'if (slot.order >= passed) continue;', ''),
  row(CLIENTS, 'limiter/charges', 'isNewer(lastReply, reply) ? lastReply : reply', 'false ? lastReply : reply'),
  row('gateway/limiter/credential.ts', 'security/encoded-keys', "text.includes('%') ? redact", 'false ? redact'),
  row('gateway/limiter/outage.ts', 'limiter/charges', "if (end === 'not run') continue;", ''),
  row('gateway/limiter/outage.ts', 'faults/charges', "here(wasSent ? 'not again' : 'later');", "here('later');"),

  // Agreement between two parts.
  row(
    CLIENTS,
    'simulation/simulation.test',
    '!isFromAllowedNetwork(bounds, use)) return undefined;',
    'false) return undefined;',
  ),
  row(
    'gateway/limiter/newcomers.ts',
    'gateway/hostile-clients',
    'if (!this.#refused.has(name)) this',
    'if (false) this',
  ),
  row(
    'gateway/primary/changes.ts',
    'gateway/confirmed-changes',
    'if (isMade) await confirm(',
    'if (!isMade) await confirm(',
  ),
  row('gateway/primary/changes.ts', 'gateway/confirmed-changes', 'if (seen === -1) {', 'if (seen === -2) {'),
  row('gateway/primary/changes.ts', 'gateway/confirmed-changes', 'if (!last) return;', 'return;'),
  row('gateway/stores/redis/peers.ts', 'security/redis-acl', 'gateway:answers:', 'gateway:replies:'),
  row(
    'gateway/primary/worker-process.ts',
    'gateway/log-reader.thorough',
    "'ignore', 'ignore', 'pipe', 'ipc', logDescriptor",
    "'ignore', 'inherit', 'pipe', 'ipc', logDescriptor",
  ),

  // What clients send.
  row('gateway/pipeline/authorize.ts', 'gateway/where-a-key-stands', 'if (holdsApiKey(target))', 'if (target === "")'),
  row('gateway/pipeline/client-http.ts', 'gateway/client-address', '|| !peer.isTrusted) return', ') return'),
  row('gateway/pipeline/client-http.ts', 'gateway/client-address', 'return ipv4 ?? ipv6;', 'return entry;'),
  row(CONNECTION, 'gateway/one-at-a-time', '(!isInBody && this.#isClosing)', 'false'),
  row(CONNECTION, 'security/unread-answers', '(parser.incoming[BODY_BYTES]?.() ?? 0)', '0'),
  row(CONNECTION, 'gateway/pipelining', 'this.answers.length >= this.#rules.unanswered', 'false'),
  row(HEAD, 'gateway/three-listeners', 'if (seen.includes(name)) refuse(', 'if (false) refuse('),
  row(HEAD, 'gateway/three-listeners', "if (coding.toLowerCase() !== 'chunked')", 'if (false)'),
  row(HEAD, 'security/canonical-request', "if (length > bytes) refuse(undefined, 'headers_too_large');", ''),
  row(
    HEAD,
    'gateway/three-listeners',
    "authorization = authorization === undefined ? value : ''",
    'authorization = value',
  ),
  row(
    'shared/http/body.ts',
    'gateway/large-requests',
    'if (length > maxBytes) reject(tooLarge(maxBytes));\n    else',
    '',
  ),
  row('shared/http/body.ts', 'gateway/three-listeners', "!one.startsWith('charset') || UTF_8.test(one)", 'true'),

  // What a restart of Redis keeps.
  row('deploy/redis/users.acl', 'deploy/redis.test', 'allkeys allchannels +@all\nuser admin', '-@all\nuser admin'),

  // What the core receives and sends.
  row(LIMIT, 'gateway/concurrency', 'CHANCE * Math.sqrt(this.inFlight)', '128'),
  row(LIMIT, 'gateway/concurrency', 'this.#mayRise = this.#queued <= allowed;', ''),
  row(LIMIT, 'gateway/core-concurrency', 'if (this.#waitedMs < this.#queueMs / 4) return', 'return'),
  row(
    LIMIT,
    'gateway/core-concurrency',
    'this.#waitedMs * left + (this.#line.waiting > 0 ? ms : 0)',
    'this.#waitedMs + ms',
  ),
  row(
    'gateway/upstream/core.ts',
    'gateway/core-concurrency',
    'if (this.#hasLine || upgrade !== undefined) return undefined;',
    '',
  ),
  row(
    'gateway/upstream/core.ts',
    'gateway/core-concurrency',
    'this.writes = line ?? new FairShare(OWN)',
    'this.writes = new FairShare(OWN)',
  ),
  row(CALL, 'gateway/core-concurrency', 'core.large?.takeNow(this.client)', 'false'),
  row(LIMIT, 'gateway/core-concurrency', 'FEWEST + 2 * this.#line.waitingClients', 'FEWEST'),
  row(LIMIT, 'gateway/concurrency', 'this.value / (this.#line.waitingClients + 1)', 'this.value'),
  row(CALL, 'gateway/core-concurrency', 'this.mayBeResent : core.isSilent', 'this.mayBeResent : false'),
  row(CALL, 'gateway/core-concurrency', 'if (this.#isSent && now - this.sentAt < silentAfterMs) return;', ''),
  row('gateway/upstream/core.ts', 'gateway/concurrency', '|| 2 * this.limit.inFlight >= this.limit.value', ''),
  row(
    'gateway/pipeline/overload.ts',
    'gateway/concurrency',
    'const wanted = caller.inFlight + 1;',
    'const wanted = caller.inFlight;',
  ),
  row(HEADERS, 'gateway/forwarding', 'if (status === 101 || status === 204) return without(kept, LENGTH);', ''),
  row(
    'gateway/pipeline/authorize.ts',
    'gateway/changed-during-body',
    "if (verdict.outcome === 'banned') exchange.laterBan = verdict;",
    '',
  ),
  row(
    'gateway/open-backend.ts',
    'gateway/plans.test',
    'planCache.ifKnown === undefined) return false',
    'planCache.version === undefined) return false',
  ),
  row(WIRE, 'gateway/line.test', 'this.#needsEcho = this.#options.needsEcho;', ''),
  row(
    WIRE,
    'gateway/reads-and-writes',
    'if (requestId === id) this.#needsEcho = true;',
    'if (requestId === id) return;',
  ),
  row(CALL, 'faults/core.thorough', '{ read: 2, write: 1 }', '{ read: 2, write: 2 }'),
  row(FAULTS, 'gateway/forwarding', 'if (CoreRefusedUs.saysSo(status))', 'if (false)'),
  row(FAULTS, 'gateway/forwarding', 'return !isOnlyCore;', 'return false;'),
  row(CALL, 'faults/silent-core', 'core.fallSilent(now);', ';'),
  row('gateway/pipeline/pipeline.ts', 'gateway/overload', 'if (!slot.resume()) return end(shed());', 'slot.resume();'),
  row(
    'gateway/pipeline/pipeline.ts',
    'gateway/webhooks.thorough',
    'deps.watch.note(client ?? new Client(keyId), verdict);',
    'if (client !== undefined) deps.watch.note(client, verdict);',
  ),
  row('shared/process/run.ts', 'gateway/next-tick', 'kept.push(executionAsyncResource())', 'kept.push({})'),
  row(
    'gateway/serve-operators.ts',
    'browser/console-outage.thorough',
    "'plan table': () => checkPlans(backend.planCache),",
    '',
  ),
  row(
    'gateway/operators/console/health.ts',
    'browser/console-health.thorough',
    'const results = bad.map(',
    'const results = bad.slice(0, 0).map(',
  ),
  row('gateway/operators/cli/commands/requests.ts', 'operators/cli-requests', ' || fault.status === 503', ''),
  row(
    'gateway/stores/plans.ts',
    'gateway/plans.test',
    '(isUsable(field, table[field]) ? table',
    '(table[field] !== undefined ? table',
  ),
  row('gateway/pipeline/own-answers.ts', 'gateway/large-answers', 'response.destroy();', 'response.end();'),
  row('gateway/pipeline/own-answers.ts', 'gateway/large-answers', "request.httpVersion === '1.0'", 'false'),
  row('gateway/upstream/answer.ts', 'gateway/answer-reader', 'if (isChunked && length !== undefined)', 'if (false)'),
  row('gateway/upstream/headers.ts', 'gateway/line.test', 'if (NOT_IN_VALUES.test(value))', 'if (false)'),
  row(HEADERS, 'gateway/forwarding', "  'set-cookie',\n", ''),
  row(HEADERS, 'gateway/forwarding', "  'strict-transport-security',\n", ''),
  row('gateway/upstream/tunnel.ts', 'security/tunnel.test', 'delete request.headers.expect;', ''),
  row('gateway/upstream/tunnel.ts', 'security/tunnel.test', 'isAccepted && isWebSocket ?', 'isWebSocket ?'),
  row(
    'gateway/upstream/tunnel.ts',
    'security/tunnel.test',
    'isConnected ? faultOf(fault) : new NotConnected(fault)',
    'faultOf(fault)',
  ),
  row(HEADERS, 'security/spoofing', "  'x-request-id',\n  'x-rewrite-url',\n  CALLER_ID,\n", "  'x-request-id',\n"),
  row(HEADERS, 'gateway/forwarding', 'if (status === 503 ||', 'if ('),

  row(
    'gateway/upstream/core.ts',
    'gateway/head-of-line.thorough',
    'if (blocker === undefined && !isKnown) return;',
    'if (!isKnown) return;',
  ),
  row(
    'shared/fair-share.ts',
    'gateway/concurrency',
    '< this.places - this.#taken;',
    '< this.places && this.#taken < this.places;',
  ),
  row(
    'gateway/primary/local-decisions.ts',
    'faults/workers-outage.thorough',
    'if (monotonicClock() - askedAt >',
    'if (monotonicClock() - askedAt > 1e15 +',
  ),
  row(
    'gateway/primary/primary.ts',
    'faults/workers-outage.thorough',
    'clients.takeOver(id, known, known.lastReply.at);',
    '',
  ),
  row('gateway/primary/changes.ts', 'faults/redis.thorough', 'await storage.change({ parts: [], entries });', ''),

  // Stores.
  row('gateway/stores/redis/change.lua', 'stores/stores', 'if value ~= expected[2] then return false end', ''),
  row('gateway/stores/redis/change.lua', 'stores/redis.test', 'math.abs(now - made_at)', '(now - made_at)'),
  row('gateway/stores/sqlite/storage.ts', 'gateway/embedded-disk', 'this.#commits.fault === FULL ?', 'false ?'),
  row(
    'gateway/stores/redis/change.lua',
    'stores/redis-faults',
    'if time[1] * 1000000 + time[2] >= tonumber(ARGV[4]) then return { -1, {} } end',
    '',
  ),
  row(
    'gateway/stores/sqlite/open.ts',
    'stores/sqlite.thorough',
    'if (isBusy(fault)) throw inUse(folder, readHolder(path));',
    '',
  ),
  row(
    'gateway/stores/key-hash.ts',
    'operators/edited-by-hand',
    'RejectedField[] = bad.map(',
    'RejectedField[] = [].map(',
  ),

  // Operators.
  row(
    'gateway/operators/api/secrets.ts',
    'operators/secrets',
    'networks: networks ?? old.networks',
    'networks: networks ?? []',
  ),
  row(
    'gateway/stores/words.ts',
    'operators/roles',
    'ROLES.slice(0, ROLES.indexOf(role) + 1).includes(needed)',
    'ROLES.includes(needed)',
  ),
  row(
    ACCESS,
    'operators/guard',
    'this.#wrong.get(name) === undefined) this.#guesses.consume(address);',
    'false) return;',
  ),
  row(
    ACCESS,
    'operators/guard',
    'if (actorHeader === undefined || !isFromProxy(request))',
    'if (actorHeader === undefined)',
  ),
  row(ACCESS, 'operators/guard', 'if (this.#isLocal && !namesLoopback(request.headers.host))', 'if (false)'),
  row(ACCESS, 'operators/guard', "if (site !== 'same-origin') return false;", ''),

  // The command line.
  row('gateway/operators/cli/named.ts', 'operators/cli-find', '(same.length === 0 || isForGood)', 'same.length === 0'),

  // The console.
  row(
    'gateway/operators/console/parts.ts',
    'browser/console-requests.thorough',
    'Date.parse(typed) === Date.parse(typedOf(spec, before)) ? before : ',
    '',
  ),
  row(
    'gateway/operators/console/dialog.ts',
    'browser/console-keys.thorough',
    'dialog.current?.showModal() : onClose();',
    'undefined : onClose();',
  ),

  // The reference.
  row('gateway/reference/page/page.js', 'browser/reference.thorough', 'return SLOWEST_MS;', 'return REFRESH_MS;'),

  // The core.
  row('core/store/sqlite.ts', 'core/group-commit', 'if (this.#file.isGone) throw', 'if (false) throw'),
  row('core/store/postgres.ts', 'core/postgres', 'else if (isCommitting) throw', 'else if (false) throw'),
  row('core/store/postgres.ts', 'core/store-faults', "this.on('error', () => {});", ''),
  row(
    'core/store/database-url.ts',
    'faults/secret-rotation.alone',
    'return this.forNewConnection() !== url;',
    'return this.#lastAccepted !== this.#read();',
  ),
  row('shared/client/transport.ts', 'core/client', 'if (!isTimeout(callMs)) throw', 'if (false) throw'),
  row(
    'core/store/idempotency.ts',
    'core/idempotency',
    'if (row?.fingerprint !== fingerprint) throw',
    'if (row === undefined) throw',
  ),
  row('core/store/idempotency.ts', 'core/idempotency', 'if (taken === undefined) return', 'if (key === "") return'),
];
