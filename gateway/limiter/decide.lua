#!lua
-- Decides a batch of requests in order, in one atomic step. Requests with the same key and secret are decided together:
-- the key's data is read once and written once.
--
-- KEYS[i]           hash of the presented API key
-- ARGV[1]           Unix time in microseconds, or '' for the server's clock
-- ARGV[2]           plan table: for each plan, a line feed and one line, such as: name minute=60 day=1000 …
--                   The line omits fields that the plan does not have.
-- ARGV[1 + 2 * i]   SHA-256 of the presented secret, in base64url
-- ARGV[2 + 2 * i]   number of requests. 0 is a peek: it returns one verdict, and takes and writes nothing.
--                   For a secret bound to a scope or to networks: 'count scope address', with the required scope
--                   or '-', and the address in the format of networks.ts or '-'.
--                   'charge admitted shadowed refused retry_at as_of spared due returned' charges the key for
--                   requests that were decided without Redis. The secret is not checked. Only admitted requests take a
--                   token. The minute bucket can go down to minus its limit, the day bucket to zero.
--                   `retry_at` is the latest time in microseconds at which a refused request may be retried, or 0.
--                   No refusal bans the key before that time.
--                   `as_of` is the time in microseconds at which Redis reported the levels from which the first token
--                   was taken. If the key was reset after that time, no token is taken.
--                   `spared` is the number of requests admitted before a reset that their gateway knew about. They
--                   take no token.
--                   `due` is taken from the minute bucket instead of `admitted` if that bucket has overflowed
--                   (client.ts).
--                   `returned` tokens were taken here for requests that their gateway had refused by then.
--
-- reply             one verdict for each request, in the order of the keys. Each is one string of words separated by
--                   spaces, which is cheaper for both sides than a list.
--   unknown | gone | disabled | ended | expired | elsewhere | misconfigured | unreadable
--     gone: no such key. ended: the secret has expired. expired: the key has expired
--   bound: the secret is bound, but scope and address were not given; nothing was decided
--   charged: as below, but with the number of forgiven tokens in place of retry_at
--   admitted | shadowed | refused | banned | forbidden, plan, now and the levels as in the field `left`,
--     banned_until in microseconds, retry_at in microseconds (0 when admitted),
--     expiry of the credential in microseconds (0 = none), bounds of the secret ('scope;networks', or '-'),
--     letters for the key's own settings: m and d for its limits, b for an operator's current ban; '-' for none,
--     names of fields with an unusable value
--
-- The hash holds times as decimal Unix seconds and levels as decimal tokens, so that people can read them. The script
-- uses integers: microseconds, whole tokens, and fractions in units of 1/window of a token. Nothing is rounded
-- (see bucket.ts). Replies are strings, because Redis truncates Lua's floats. All checks precede the first write,
-- because Redis does not roll back. The first line (Redis 7) keeps Redis from starting the script if it would refuse a
-- write: when out of memory, with too few replicas, or on a read-only replica.

local SECOND, MINUTE, DAY = 1000000, 60000000, 86400000000
local LONGEST_BAN, SERIES, MAX_DOUBLINGS = DAY, DAY, 17
local HELD, FORGOTTEN, LINE_MINUTES, LONGEST_LINE, LOWERED = 5, 8, 15, 60 * MINUTE, 2
local MINUTES_KEPT, DAYS_KEPT, LONGEST_MARKS = 61, 36, 4096
-- Room for twenty secrets, each with its last use.
local LONGEST_USED = 400
-- The text after the eight-character id of a secret that has no expiry, both scopes and no networks.
local USUAL_SECRET, USUAL_PLACE = ' - read,write - ', 9
local ANY_SECRET = '--------' .. USUAL_SECRET
local MAX_LIMIT, HALF, LATEST = 1000000000, 32768, 10000000000
-- The field `left`: the time of the levels, then both levels: `1795132800.125000 59.50000000/60 999/1000`.
local LEFT, LONGEST_LEFT = '^(%S+) (%-?)(%d+)%.?(%d*)/?(%d*) (%-?)(%d+)%.?(%d*)/?(%d*)$', 100

local call, pcall = redis.call, redis.pcall
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local find, match, gmatch, gsub, sub, format, tonumber = string.find, string.match, string.gmatch, string.gsub, string.sub, string.format, tonumber

-- People type these numbers. Only plain digits from 1 to 10^9 are valid; tonumber alone accepts nan, inf, 0x3C and 6e1.
-- Many keys have the same limits, so each string is parsed once per batch.
local limits = {}
local function read_limit(text)
  if not text then return nil end
  local limit = limits[text]
  if limit == nil then
    limit = #text <= 10 and find(text, '^%d+$') and tonumber(text)
    limit = limit and limit >= 1 and limit <= MAX_LIMIT and limit
    limits[text] = limit
  end
  return limit or nil
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

local function add(changes, field, value)
  local at = #changes
  changes[at + 1], changes[at + 2] = field, value
end

-- Usage (key-record.ts): at the first decision of a minute or a day, adds a mark with the totals so far, and drops old
-- marks. A damaged list is discarded. The first mark is written together with the second. Until then, it is not needed,
-- because all requests belong to the minute of the last decision.
local function with_mark(marks, first, at, totals, kept)
  local from = 1
  if not marks then marks = format('%d:0:0', first) end
  local mark = #marks <= LONGEST_MARKS and match(marks, '^%d+')
  while mark and tonumber(mark) <= at - kept do
    from = (find(marks, ' ', from, true) or #marks) + 1
    mark = match(marks, '^%d+', from)
  end
  return format('%s%d:%s', mark and sub(marks, from) .. ' ' or '', at, totals)
end

-- The marks are long and seldom needed, so they have their own key in the same slot. While the slot migrates, that key
-- may be on the other node. The requests then count toward the previous minute.
local function note_use(key, last, now, admitted)
  local minute, day = floor(now / MINUTE), floor(now / DAY)
  local last_minute, last_day = floor((last or now) / MINUTE), floor((last or now) / DAY)
  if last_minute == minute then return end
  local marks_key = gsub(key, ':key:', ':marks:', 1)
  local marks = pcall('HMGET', marks_key, 'usage_minutes', 'usage_days')
  if marks.err then return end
  local totals = format('%d:%d', read_count(admitted), read_count(call('HGET', key, 'refused')))
  local changes = { 'usage_minutes', with_mark(marks[1], last_minute, minute, totals, MINUTES_KEPT) }
  if last_day ~= day then add(changes, 'usage_days', with_mark(marks[2], last_day, day, totals, DAYS_KEPT)) end
  pcall('HSET', marks_key, unpack(changes))
  pcall('EXPIRE', marks_key, DAYS_KEPT * DAY / SECOND)
end

-- A level: `59.50000000/60`, the tokens and the current limit. There are enough decimals to distinguish any two
-- fractions of a minute or a day.
local function write_level(tokens, fraction, window, limit)
  if fraction == 0 then return tokens .. '/' .. limit end
  local sign, shape, unit = '', '%s%d.%08d/%d', 1e8
  if window == DAY then shape, unit = '%s%d.%011d/%d', 1e11 end
  if tokens < 0 then sign, tokens, fraction = '-', -tokens - 1, window - fraction end
  return format(shape, sign, tokens, floor(fraction / window * unit + 0.5), limit)
end

-- Returns the level after `elapsed` ticks, refilled at the lower of the old and the new limit. A missing or unreadable
-- level counts as full: this grants at most one extra full bucket.
local function refill(sign, tokens, decimals, limit_then, limit, window, elapsed)
  if not tokens or #tokens > 10 or #decimals > 12 then return limit, 0 end
  limit = min(read_limit(limit_then) or limit, limit)
  if elapsed >= (sign == '-' and 2 * window or window) then return limit, 0 end
  tokens = tonumber(tokens)
  local fraction = decimals == '' and 0 or floor(tonumber(decimals) / 10 ^ #decimals * window + 0.5)
  if sign == '-' then
    tokens = -tokens
    if fraction > 0 then tokens, fraction = tokens - 1, window - fraction end
    -- A lowered limit lowers a debt too.
    if tokens < -limit then tokens, fraction = -limit, 0 end
  end
  -- elapsed * limit / window. The product can exceed 2^53, so it is computed in two halves that stay below it.
  local high = elapsed * floor(limit / HALF)
  local rest = (high % window) * HALF + elapsed * (limit % HALF)
  tokens = tokens + floor(high / window) * HALF + floor(rest / window)
  fraction = fraction + rest % window
  if fraction >= window then tokens, fraction = tokens + 1, fraction - window end
  if tokens >= limit then return limit, 0 end
  return tokens, fraction
end

-- Reads a time for the refusal rules (refusals.ts). A time in the past counts as `now`.
local function time_of(text, now, shift)
  return max((read_time(text) or 0) - shift, now)
end

-- The end of the line now. If the limit was raised, the number of places is kept, and each takes less time. If the day
-- bucket is empty, the line waits for that bucket.
local function in_places(line, now, is_of_day, minute_then, minute_limit, day_then, day_limit)
  local window, limit_then, limit = MINUTE, minute_then, minute_limit
  if is_of_day then window, limit_then, limit = DAY, day_then, day_limit end
  limit_then = read_limit(limit_then) or limit
  if line <= now or limit <= limit_then then return line end
  return min(line, now + ceil((line - now) / ceil(window / limit_then)) * ceil(window / limit))
end

-- A time in the past is written as 0.
local NO_REFUSALS = '0 0 0'
local function time_or_none(time, past)
  return time > past and write_time(time) or '0'
end

-- Ticks until one strike is forgotten, and until all strikes that a key can hold are forgotten.
local function strike_time(minute_limit)
  return max(1, floor(MINUTE / (FORGOTTEN * minute_limit)))
end
local function strike_times(plan, minute_limit)
  local strike = strike_time(minute_limit)
  return strike, (plan.ban_after or HELD * minute_limit) * strike
end

-- Subtracts a debt from a level, but not below `least`. A level that is already below `least` does not change.
local function debited(tokens, fraction, owed, least)
  if tokens - owed >= least then return tokens - owed, fraction end
  if tokens < least then return tokens, fraction end
  return least, 0
end

local function returned_to(tokens, fraction, returned, limit)
  if tokens + returned < limit then return tokens + returned, fraction end
  return limit, 0
end

local function ticks_until_token(limit, window, tokens, fraction)
  if tokens >= 1 then return 0 end
  -- window * missing / limit, in two halves as above.
  local missing = 1 - tokens
  local high = window * floor(missing / HALF)
  local rest = (high % limit) * HALF + window * (missing % HALF)
  return floor(high / limit) * HALF + floor(rest / limit) + ceil((rest % limit - fraction) / limit)
end

-- When a refused request may be retried: one token's refill time after the last request in line.
local function next_place(line_until, now, minute_limit, minute_tokens, minute_fraction, day_limit, day_tokens, day_fraction)
  local minute_wait = ticks_until_token(minute_limit, MINUTE, minute_tokens, minute_fraction)
  local day_wait = ticks_until_token(day_limit, DAY, day_tokens, day_fraction)
  local token = now + max(minute_wait, day_wait)
  if line_until <= now then return token end
  local token_time = ceil(day_wait > minute_wait and DAY / day_limit or MINUTE / minute_limit)
  return max(token, min(line_until + token_time, now + min(LINE_MINUTES * minute_limit * token_time, LONGEST_LINE)))
end

-- Plans are parsed on first use and kept for the rest of the batch. A name must be one word: with spaces or line feeds,
-- it could forge lines of the table or words of the reply.
local plans = {}
local function plan_of(name)
  local plan = plans[name]
  if not plan then
    plan = {}
    local begins = find(name, '^%l+$') and find(ARGV[2], '\n' .. name .. ' ', 1, true)
    local line = begins and match(ARGV[2], '[^\n]+', begins + 1) or ''
    for field, value in gmatch(line, ' ([%l_]+)=(%S+)') do plan[field] = read_limit(value) or value end
    plans[name] = plan
  end
  return plan
end

local clock = tonumber(ARGV[1])
if not clock then
  local time = call('TIME')
  clock = tonumber(time[1]) * SECOND + tonumber(time[2])
end

local clock_text, minute = write_time(clock) .. ' ', floor(clock / MINUTE)
local clock_minute = format('%d', minute * 60)

-- When each secret was last used, to the minute: `k3JtQz81:1795132800 x8aPw02m:1795132740`.
local function with_use(used, secret_id, use)
  local others = used and #used <= LONGEST_USED and gsub(used, secret_id .. ':%d+ ?', '') or ''
  return (others == '' and '' or match(others, '^.*%S') .. ' ') .. use
end

-- Whether an address is in one of the networks: IP version, hex digits of the prefix, its length in bits (networks.ts).
local function is_within(networks, address)
  if address == '-' then return false end
  for network in gmatch(networks, '[^,]+') do
    local digits, bits = match(network, '^([46]:[%da-f]*)/(%d%d?%d?)$')
    local whole, rest = 2 + floor((bits or 0) / 4), (bits or 0) % 4
    -- A malformed network contains no address.
    if bits and not find(bits, '^0.') and #digits == 2 + ceil(bits / 4) and sub(digits, 1, whole) == sub(address, 1, whole) then
      local own, other = tonumber(sub(digits, whole + 1, whole + 1), 16), tonumber(sub(address, whole + 1, whole + 1), 16)
      if rest == 0 or own and other and floor(own / 2 ^ (4 - rest)) == floor(other / 2 ^ (4 - rest)) then return true end
    end
  end
  return false
end

local function describe(outcome, plan, left, banned_until, retry_at, rest)
  if banned_until == 0 and retry_at == 0 then return outcome .. ' ' .. plan .. ' ' .. left .. ' 0 0' .. rest end
  return format('%s %s %s %d %d%s', outcome, plan, left, banned_until, retry_at, rest)
end

local verdicts = {}

-- The last good value of a field whose current value is bad (key-hash.ts).
-- @return false if no gateway has written the key; nil if the field had no value
local function kept_value(key, field)
  local kept = call('HMGET', key, 'ok_secrets', 'ok_' .. field)
  if not kept[1] then return false end
  return kept[2] or nil
end

-- Decides `count` requests with the same key and secret. This is one function, because passing the key's data in a
-- table would make it a third slower.
-- @param charge the eight numbers of a charge, as described at the top of this file; nil for requests
local function decide(key, digest, count, wanted, address, charge)
  local fields = pcall('HMGET', key, 'secret:' .. digest, 'used', 'disabled', 'expires_at', 'plan', 'minute', 'day',
    'left', 'refusals', 'banned_until', 'admitted')
  if fields.err then return 'unreadable' end
  local secret, used, disabled, expires_at, plan_name, own_minute, own_day, stored, refusals, banned_until, admitted =
    unpack(fields)

  -- If the clock was set back, all stored times move back with it, so that nothing lasts longer.
  local as_of, minute_sign, minute_left, minute_decimals, minute_then, day_sign, day_left, day_decimals, day_then
  if stored and #stored <= LONGEST_LEFT then
    as_of, minute_sign, minute_left, minute_decimals, minute_then, day_sign, day_left, day_decimals, day_then = match(stored, LEFT)
    as_of = read_time(as_of)
  end
  local last, now, shift = as_of, clock, 0
  if as_of and as_of > clock then as_of, shift = clock, as_of - clock end

  if charge then
    if call('EXISTS', key) == 0 then return 'gone' end
    secret, disabled, expires_at = ANY_SECRET, nil, nil
  elseif not secret then
    if call('EXISTS', key) == 0 then return 'gone' end
    return call('HGET', key, 'ok_secrets') and 'unknown' or 'unreadable'
  end
  local ends_at, bounds, is_allowed = 0, '-', true
  if find(secret, USUAL_SECRET, USUAL_PLACE, true) ~= USUAL_PLACE then
    local secret_end, scope, networks = match(secret, '^%w+ (%S+) (%S+) (%S+) ')
    ends_at = secret_end == '-' and 0 or read_time(secret_end)
    if not ends_at then return 'unreadable' end
    if scope ~= 'read,write' or networks ~= '-' then
      if not wanted then return 'bound' end
      bounds, is_allowed = scope .. ';' .. networks, wanted == '-' or find(scope, wanted, 1, true) ~= nil
    end
    if ends_at > 0 and ends_at <= now then return 'ended' end
    if networks ~= '-' and not is_within(networks, address) then return 'elsewhere' end
  end
  if disabled and disabled ~= '' and disabled ~= '0' then return 'disabled' end
  local rejected = ''
  if expires_at and expires_at ~= '' and not read_time(expires_at) then
    expires_at, rejected = kept_value(key, 'expires_at'), ' expires_at'
    if expires_at == false then return 'unreadable' end
  end
  if expires_at and expires_at ~= '' then
    local expiry = read_time(expires_at)
    if not expiry then return 'unreadable' end
    if expiry <= now then return 'expired' end
    if ends_at == 0 or expiry < ends_at then ends_at = expiry end
  end

  local plan = plan_of(plan_name or '')
  if not plan.ban_seconds then
    plan_name = kept_value(key, 'plan') or plan_name
    plan, rejected = plan_of(plan_name or ''), rejected .. ' plan'
  end
  local minute_limit, day_limit = read_limit(own_minute), read_limit(own_day)
  if own_minute and not minute_limit then
    minute_limit, rejected = read_limit(kept_value(key, 'minute')), rejected .. ' minute'
  end
  if own_day and not day_limit then
    day_limit, rejected = read_limit(kept_value(key, 'day')), rejected .. ' day'
  end
  if not ((minute_limit or plan.minute) and (day_limit or plan.day)) then
    -- An enterprise key needs both limits. If one is missing, the last good plan and limits of the key replace its
    -- current ones (key-hash.ts).
    local kept_plan = kept_value(key, 'plan')
    if kept_plan then
      plan_name, plan, rejected = kept_plan, plan_of(kept_plan), rejected .. ' plan'
      minute_limit, day_limit = read_limit(kept_value(key, 'minute')), read_limit(kept_value(key, 'day'))
    end
  end
  local own = (minute_limit and 'm' or '') .. (day_limit and 'd' or '')
  minute_limit, day_limit = minute_limit or plan.minute, day_limit or plan.day
  if not (minute_limit and day_limit and plan.ban_seconds) then return 'misconfigured' end

  local elapsed = as_of and now - as_of
  if not elapsed then
    elapsed = DAY
    if stored then rejected = rejected .. ' left' end
  end
  local minute_tokens, minute_fraction =
    refill(minute_sign, minute_left, minute_decimals, minute_then, minute_limit, MINUTE, elapsed)
  local day_tokens, day_fraction = refill(day_sign, day_left, day_decimals, day_then, day_limit, DAY, elapsed)

  -- In place of an end that is not a time, the one that an operator or a decision has set stays in force.
  local ban = read_time(banned_until)
  if not ban and banned_until and banned_until ~= '' then
    local copies = call('HMGET', key, 'ban_reason_until', 'ban_decided')
    ban, rejected = max(read_time(copies[1]) or 0, read_time(copies[2]) or 0), rejected .. ' banned_until'
  end
  banned_until = ban or 0
  -- A ban set by a decision moves back with the clock, and a plan in shadow mode ignores it. Neither is true of an
  -- operator's ban.
  local is_decided, is_ignored = false, false
  if banned_until > 0 and (shift > 0 or banned_until > now) then
    if (read_time(call('HGET', key, 'ban_reason_until')) or 0) == banned_until then
      if banned_until > now then own = own .. 'b' end
    else
      is_decided = shift > 0 and (read_time(call('HGET', key, 'ban_decided')) or 0) == banned_until
      banned_until = max(banned_until - shift, 0)
      is_ignored = plan.mode == 'shadow' and banned_until > now
    end
  end

  -- Drops the refusals that no longer count. A key has more strikes than its maximum only if a limit was changed. The
  -- change alone must not ban the key, so this makes room for the next strike.
  local line, strikes, full_at, strike, most = now, now, 0, nil, nil
  local limit_then = read_limit(minute_then) or minute_limit
  if refusals then
    local line_until, strikes_until, first_full = match(refusals, '^(%S+) (%S+) (%S+)$')
    if not first_full then rejected = rejected .. ' refusals' end
    line, strikes = time_of(line_until, now, shift), time_of(strikes_until, now, shift)
    full_at = max((read_time(first_full) or 0) - shift, 0)
    -- If the limit was lowered by more than half, clients still retry at the times set under the old limit. No refusal
    -- bans the key until those times have passed.
    if line > now and LOWERED * minute_limit < limit_then then full_at = max(full_at, line) end
    line = in_places(line, now, day_tokens < 1, minute_then, minute_limit, day_then, day_limit)
  end
  local excused = full_at > now and full_at or 0
  if strikes <= now then
    full_at = excused
  else
    strike, most = strike_times(plan, minute_limit)
    -- A changed limit changes how long a strike lasts, not the number of strikes.
    local ceiling = most
    if limit_then ~= minute_limit then
      strikes = now + floor((strikes - now) * strike / strike_time(limit_then))
      ceiling = most - strike
    end
    if strikes - now > ceiling then strikes, full_at = now + most - strike, excused end
    if strikes <= now then full_at = excused end
  end

  if own == '' then own = '-' end
  local rest = ends_at == 0 and bounds == '-' and ' 0 - ' .. own .. rejected
    or format(' %d %s %s%s', ends_at, bounds, own, rejected)

  -- A request takes a token from both buckets or from neither. In shadow mode every request is admitted and counted as
  -- admitted. A refused request takes the next place in line and adds a strike. If there is no room for the strike, and
  -- the grace period has passed since that first happened, the key is banned. A ban that begins less than a day after
  -- the last one ended is twice as long.
  local more_admitted, more_refused, more_shadowed, bans, left = 0, 0, 0, nil, nil
  -- If the clock was set back, the time of the last reset moves back too.
  local reset_at = (charge or shift > 0) and read_time(call('HGET', key, 'reset_at'))
  if reset_at then reset_at = reset_at - shift end
  if charge then
    local admitted_there, owed, before = charge[1] + charge[6], charge[1], minute_tokens
    if reset_at and charge[5] <= reset_at then owed = 0 end
    -- Each gateway assigned retry times on its own, so clients of different gateways may retry at the same moment.
    if charge[4] > now then full_at = max(full_at, min(charge[4], now + LONGEST_LINE)) end
    -- A full bucket, or one that lacks only the token of one late request, has overflowed. Otherwise, other gateways
    -- may have taken the tokens that the charging gateway counted as refilled.
    local due = minute_tokens < minute_limit - 1 and owed or min(owed, charge[7])
    minute_tokens, minute_fraction = debited(minute_tokens, minute_fraction, due, -minute_limit)
    day_tokens, day_fraction = debited(day_tokens, day_fraction, owed, 0)
    local forgiven = admitted_there - owed + due - (before - minute_tokens)
    if charge[8] > 0 and not (reset_at and charge[5] <= reset_at) then
      minute_tokens, minute_fraction = returned_to(minute_tokens, minute_fraction, charge[8], minute_limit)
      day_tokens, day_fraction = returned_to(day_tokens, day_fraction, charge[8], day_limit)
    end
    more_admitted, more_shadowed, more_refused = admitted_there + charge[2], charge[2], charge[3]
    left = clock_text .. write_level(minute_tokens, minute_fraction, MINUTE, minute_limit) .. ' ' ..
      write_level(day_tokens, day_fraction, DAY, day_limit)
    verdicts[#verdicts + 1] = describe('charged', plan_name, left, banned_until, forgiven, rest)
  end
  for _ = 1, charge and 0 or max(count, 1) do
    local outcome, retry_at = 'admitted', 0
    local is_there = minute_tokens >= 1 and day_tokens >= 1
    if banned_until > now and not is_ignored then
      outcome, retry_at = 'banned', banned_until
    elseif not is_allowed then
      outcome = 'forbidden'
    elseif is_there or plan.mode == 'shadow' then
      if count > 0 then
        more_admitted = more_admitted + 1
        if is_there then
          minute_tokens, day_tokens, left = minute_tokens - 1, day_tokens - 1, nil
        else
          outcome, more_shadowed = 'shadowed', more_shadowed + 1
        end
      end
    else
      outcome = 'refused'
      retry_at = next_place(line, now, minute_limit, minute_tokens, minute_fraction, day_limit, day_tokens, day_fraction)
      if count > 0 then
        if not strike then strike, most = strike_times(plan, minute_limit) end
        local struck = strikes - now + strike
        if struck > most and full_at == 0 then full_at = now end
        if struck > most and now - full_at >= tonumber(plan.ban_grace_seconds) * SECOND then
          local in_series = banned_until > 0 and now < banned_until + SERIES
          bans = in_series and read_count(call('HGET', key, 'bans')) + 1 or 1
          local first = plan.ban_seconds * SECOND
          banned_until = now + min(first * 2 ^ min(bans - 1, MAX_DOUBLINGS), max(first, LONGEST_BAN))
          outcome, retry_at, line, strikes, full_at = 'banned', banned_until, now, now, 0
        else
          line, strikes, more_refused = retry_at, now + min(struck, most), more_refused + 1
        end
      end
    end
    left = left or clock_text .. write_level(minute_tokens, minute_fraction, MINUTE, minute_limit) .. ' ' ..
      write_level(day_tokens, day_fraction, DAY, day_limit)
    verdicts[#verdicts + 1] = describe(outcome, plan_name, left, banned_until, retry_at, rest)
  end

  local is_counted = more_admitted + more_refused > 0 or bans
  if not charge and (count == 0 or shift == 0 and not is_counted) then return end
  local changes = { 'left', left }
  if more_admitted > 0 then add(changes, 'admitted', read_count(admitted) + more_admitted) end
  if more_refused > 0 then add(changes, 'refused', read_count(call('HGET', key, 'refused')) + more_refused) end
  if more_shadowed > 0 then add(changes, 'shadowed', read_count(call('HGET', key, 'shadowed')) + more_shadowed) end
  if is_counted and not charge then
    -- Secrets can also be typed by hand, so an id that is not one word is not recorded.
    local secret_id = match(secret, '^(%w+) ')
    local use = secret_id and secret_id .. ':' .. clock_minute
    if use and used ~= use and not (used and find(used, use, 1, true)) then
      add(changes, 'used', with_use(used, secret_id, use))
    end
  end
  if not last or floor(last / MINUTE) ~= minute then note_use(key, last, now, admitted) end
  if bans or shift > 0 and banned_until > 0 then add(changes, 'banned_until', write_time(banned_until)) end
  if bans or is_decided then add(changes, 'ban_decided', write_time(banned_until)) end
  if shift > 0 and reset_at then add(changes, 'reset_at', write_time(max(reset_at, 0))) end
  if bans then add(changes, 'bans', bans) end
  if refusals or more_refused > 0 and not charge or full_at > now then
    local written = time_or_none(line, now) .. ' ' .. time_or_none(strikes, now) .. ' ' .. time_or_none(full_at, 0)
    if written == NO_REFUSALS then
      call('HDEL', key, 'refusals')
    elseif written ~= refusals then
      add(changes, 'refusals', written)
    end
  end
  call('HSET', key, unpack(changes))
end

for i = 1, #KEYS do
  local count, wanted, address, charge = tonumber(ARGV[2 + 2 * i]), nil, nil, nil
  if not count then
    local numbers = match(ARGV[2 + 2 * i], '^charge (.*)$')
    if numbers then
      count, charge = 0, {}
      for number in gmatch(numbers, '%d+') do charge[#charge + 1] = tonumber(number) end
    else
      count, wanted, address = match(ARGV[2 + 2 * i], '^(%d+) (%S+) (%S+)$')
      count = tonumber(count)
    end
  end
  local nothing = decide(KEYS[i], ARGV[1 + 2 * i], count, wanted, address, charge)
  if nothing then
    for _ = 1, max(count, 1) do verdicts[#verdicts + 1] = nothing end
  end
end
return verdicts
