-- Decides a batch of requests, each in its turn, all in one atomic step.
--
-- KEYS[i]       hash of the API key that request i presents
-- ARGV[1]       Unix time in microseconds, or '' for the server's own clock
-- ARGV[2]       plan table, a line a plan: name minute day ban_after ban_within_seconds ban_seconds ('-' = has none)
-- ARGV[2 + i]   SHA-256, in hex, of the secret that request i presents
--
-- reply         { verdict 1, verdict 2, ... }, a verdict being one of
--   { 'unknown' | 'disabled' | 'expired' | 'misconfigured' | 'unreadable' }
--   { 'admitted' | 'refused' | 'banned', plan, now in microseconds, minute limit, tokens, parts, day limit, tokens, parts,
--     banned_until in microseconds, names of override fields that hold no limit }
--
-- In the hash, times are decimal Unix seconds and levels decimal tokens, as a person would write them. In here they are
-- integers: microseconds, and whole tokens with parts, a part being 1/window of a token. Nothing rounds (bucket.ts says
-- why), and replies are integers and strings because Redis truncates Lua's floats. Everything is checked before anything
-- is written: Redis does not roll back.

local SECOND, MINUTE, DAY = 1000000, 60000000, 86400000000
local JITTER, LONGEST_BAN, SERIES, MAX_DOUBLINGS = SECOND, DAY, DAY, 17
local MAX_LIMIT, HALF, DECIMALS, LATEST = 1000000000, 32768, 1000000000000, 10000000000
local FIELDS = { 'plan', 'secret', 'old_secret', 'old_secret_until', 'disabled', 'expires_at', 'minute', 'day',
  'minute_left', 'day_left', 'patience_left', 'as_of', 'banned_until', 'bans', 'admitted', 'refused' }

local floor, max, min = math.floor, math.max, math.min
local find, match, format = string.find, string.match, string.format

-- Numbers come from people: plain digits, 1 to 10^9, or nil. tonumber alone takes nan, inf, 0x3C and 6e1.
local function read_limit(text)
  local limit = text and #text <= 10 and find(text, '^%d+$') and tonumber(text)
  return limit and limit >= 1 and limit <= MAX_LIMIT and limit or nil
end

local function read_time(text)
  local seconds = text and #text <= 24 and find(text, '^%d+%.?%d*$') and tonumber(text)
  return seconds and seconds < LATEST and floor(seconds * SECOND + 0.5) or nil
end

local function write_time(time)
  return format('%d.%06d', floor(time / SECOND), time % SECOND)
end

local function read_count(text)
  return text and #text <= 15 and find(text, '^%d+$') and tonumber(text) or 0
end

-- A level that cannot be read counts as full: at most one capacity is given away.
local function read_level(text, window)
  local tokens, decimals = match(text or '', '^(%d+)%.?(%d*)$')
  if not tokens or #tokens > 10 or #decimals > 12 then return nil end
  return tonumber(tokens), decimals == '' and 0 or floor(tonumber('0.' .. decimals) * window + 0.5)
end

-- Twelve decimals tell any two parts apart, even of the longest window.
local function write_level(tokens, parts, window)
  return format('%d.%012d', tokens, floor(parts / window * DECIMALS + 0.5))
end

-- a * b / c as quotient and remainder; b in two halves, so that no product passes 2^53.
local function multiply_divide(a, b, c)
  local high = a * floor(b / HALF)
  local rest = (high % c) * HALF + a * (b % HALF)
  return floor(high / c) * HALF + floor(rest / c), rest % c
end

local function refill(text, limit, window, elapsed)
  local tokens, parts = read_level(text, window)
  if not tokens or elapsed >= window then return limit, 0 end
  local more, rest = multiply_divide(elapsed, limit, window)
  tokens, parts = tokens + more, parts + rest
  if parts >= window then tokens, parts = tokens + 1, parts - window end
  if tokens >= limit then return limit, 0 end
  return tokens, parts
end

local plan_lines, plans = {}, {}
for name, line in string.gmatch(ARGV[2], '(%S+) ([^\n]+)') do plan_lines[name] = line end

-- Read on first use and kept for the rest of the batch.
local function plan_of(name)
  if plans[name] == nil then
    local minute, day, after, within, length = match(plan_lines[name] or '', '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
    plans[name] = { minute = read_limit(minute), day = read_limit(day), ban_after = read_limit(after),
      ban_within = read_limit(within), ban_seconds = read_limit(length) }
  end
  return plans[name]
end

local function server_clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * SECOND + tonumber(time[2])
end

local clock = ARGV[1] ~= '' and tonumber(ARGV[1]) or server_clock()

local function decide(key, digest)
  local fields = redis.pcall('HMGET', key, unpack(FIELDS))
  if fields.err then return { 'unreadable' } end
  local plan_name, secret, old_secret, old_secret_until, disabled, expires_at, own_minute, own_day,
    minute_left, day_left, patience_left, as_of_text, banned_until_text, bans, admitted, refused = unpack(fields)

  local as_of = read_time(as_of_text)
  if as_of and as_of > clock + JITTER then as_of = clock end
  local now = max(clock, as_of or 0)

  -- Who is it?
  local is_old = digest == old_secret and (read_time(old_secret_until) or 0) > now
  if not secret or (digest ~= secret and not is_old) then return { 'unknown' } end
  if disabled and disabled ~= '' and disabled ~= '0' then return { 'disabled' } end
  if expires_at and (read_time(expires_at) or 0) <= now then return { 'expired' } end

  -- What may it?
  local plan = plan_of(plan_name or '')
  local rejected = {}
  if own_minute and not read_limit(own_minute) then rejected[#rejected + 1] = 'minute' end
  if own_day and not read_limit(own_day) then rejected[#rejected + 1] = 'day' end
  local minute_limit = read_limit(own_minute) or plan.minute
  local day_limit = read_limit(own_day) or plan.day
  if not (minute_limit and day_limit and plan.ban_after and plan.ban_within and plan.ban_seconds) then
    return { 'misconfigured' }
  end

  local elapsed = as_of and now - as_of or DAY
  local minute_tokens, minute_parts = refill(minute_left, minute_limit, MINUTE, elapsed)
  local day_tokens, day_parts = refill(day_left, day_limit, DAY, elapsed)
  local function answer(outcome, banned_until)
    return { outcome, plan_name, now, minute_limit, minute_tokens, minute_parts, day_limit, day_tokens, day_parts,
      banned_until, table.concat(rejected, ' ') }
  end

  local banned_until = read_time(banned_until_text) or 0
  if banned_until > now then return answer('banned', banned_until) end

  -- Both buckets or neither.
  local outcome = minute_tokens >= 1 and day_tokens >= 1 and 'admitted' or 'refused'
  if outcome == 'admitted' then
    minute_tokens, day_tokens = minute_tokens - 1, day_tokens - 1
  end

  -- Patience counts whole seconds, the unit in which it is set. A refusal is a strike; the last one bans.
  local seconds = as_of and floor(now / SECOND) - floor(as_of / SECOND) or plan.ban_within
  local patience_tokens, patience_parts = refill(patience_left, plan.ban_after, plan.ban_within, seconds)
  if outcome == 'refused' then
    patience_tokens = max(patience_tokens - 1, 0)
    if patience_tokens < 1 then
      outcome = 'banned'
      bans = banned_until > 0 and now < banned_until + SERIES and read_count(bans) + 1 or 1
      banned_until = now + min(plan.ban_seconds * SECOND * 2 ^ min(bans - 1, MAX_DOUBLINGS), LONGEST_BAN)
    end
  end

  local changes = {}
  local function put(field, value) changes[#changes + 1], changes[#changes + 2] = field, value end
  put('as_of', write_time(now))
  put('minute_left', write_level(minute_tokens, minute_parts, MINUTE))
  put('day_left', write_level(day_tokens, day_parts, DAY))
  put('patience_left', write_level(patience_tokens, patience_parts, plan.ban_within))
  if outcome == 'admitted' then
    put('admitted', format('%d', read_count(admitted) + 1))
  else
    put('refused', format('%d', read_count(refused) + 1))
  end
  if outcome == 'banned' then
    put('banned_until', write_time(banned_until))
    put('bans', format('%d', bans))
  end
  redis.call('HSET', key, unpack(changes))
  return answer(outcome, banned_until)
end

local verdicts = {}
for i, key in ipairs(KEYS) do verdicts[i] = decide(key, ARGV[i + 2]) end
return verdicts
