#!lua
-- Decides a batch of requests, each in its turn, all in one atomic step. Those that present one key with one secret are
-- decided together: what the key has is read once and written once, however many they are.
--
-- KEYS[i]           hash of the API key that is presented
-- ARGV[1]           Unix time in microseconds, or '' for the server's own clock
-- ARGV[2]           plan table, a line a plan, each begun by a line feed: name minute day ban_after ban_within_seconds ban_seconds mode ('-' = none)
-- ARGV[1 + 2 * i]   SHA-256, in hex, of the secret that is presented
-- ARGV[2 + 2 * i]   by how many requests; 0 to be told where the key stands, with one verdict, nothing taken and nothing written
--
-- reply             a verdict for every request, in the order of the keys, each a text of words with a space between, because
--                   one text costs both sides less than the same as a list:
--   unknown | disabled | expired | misconfigured | unreadable
--   admitted | shadowed | refused | banned, plan, now in microseconds, minute limit, tokens, parts, day limit, tokens, parts,
--     banned_until in microseconds, end of the credential in microseconds (0 = none), names of override fields that hold no limit
--
-- In the hash, times are decimal Unix seconds and levels decimal tokens, as a person would write them. In here they are
-- integers: microseconds, and whole tokens with parts, a part being 1/window of a token. Nothing rounds (bucket.ts says
-- why), and replies are texts because Redis truncates Lua's floats. Everything is checked before anything
-- is written: Redis does not roll back. The first line (Redis 7) has Redis itself check first: where a write would be
-- refused, for want of memory or replicas or on a replica, the script does not start.

local SECOND, MINUTE, DAY = 1000000, 60000000, 86400000000
local JITTER, LONGEST_BAN, SERIES, MAX_DOUBLINGS = SECOND, DAY, DAY, 17
local MINUTES_KEPT, DAYS_KEPT, LONGEST_MARKS = 61, 36, 4096
local MAX_LIMIT, HALF, DECIMALS, LATEST = 1000000000, 32768, 1000000000000, 10000000000

local call, pcall = redis.call, redis.pcall
local floor, max, min = math.floor, math.max, math.min
local find, match, sub, format, tonumber = string.find, string.match, string.sub, string.format, tonumber

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

local function add(changes, field, value)
  local at = #changes
  changes[at + 1], changes[at + 2] = field, value
end

-- Usage (usage.ts): what the totals were before the first decision of a minute, or of a day, behind the marks of earlier
-- ones that are not too old. They are kept in the key's own hash: a second key would not always be at hand while a slot
-- migrates. What a hand has spoilt is begun anew.
local function with_mark(key, field, at, totals, kept)
  local marks, from = call('HGET', key, field) or '', 1
  local mark = #marks <= LONGEST_MARKS and match(marks, '^%d+')
  while mark and tonumber(mark) <= at - kept do
    from = (find(marks, ' ', from, true) or #marks) + 1
    mark = match(marks, '^%d+', from)
  end
  return format('%s%d:%s', mark and sub(marks, from) .. ' ' or '', at, totals)
end

local function note_use(key, changes, last, now, admitted, refused)
  local minute = floor(now / MINUTE)
  if last and floor(last / MINUTE) == minute then return end
  local totals = format('%d:%d', read_count(admitted), read_count(refused))
  add(changes, 'usage_minutes', with_mark(key, 'usage_minutes', minute, totals, MINUTES_KEPT))
  local day = floor(now / DAY)
  if last and floor(last / DAY) == day then return end
  add(changes, 'usage_days', with_mark(key, 'usage_days', day, totals, DAYS_KEPT))
end

-- Twelve decimals tell any two parts apart, even of the longest window.
local function write_level(tokens, parts, window)
  return format('%d.%012d', tokens, floor(parts / window * DECIMALS + 0.5))
end

-- The level in `text` after `elapsed` ticks. One that is not there, or cannot be read, counts as full: at the most one
-- capacity is given away.
local function refill(text, limit, window, elapsed)
  if not text or elapsed >= window then return limit, 0 end
  local tokens, decimals = match(text, '^(%d+)%.?(%d*)$')
  if not tokens or #tokens > 10 or #decimals > 12 then return limit, 0 end
  tokens = tonumber(tokens)
  local parts = decimals == '' and 0 or floor(tonumber('0.' .. decimals) * window + 0.5)
  -- elapsed * limit / window; the product can pass 2^53, so it is taken in two halves that do not.
  local high = elapsed * floor(limit / HALF)
  local rest = (high % window) * HALF + elapsed * (limit % HALF)
  tokens = tokens + floor(high / window) * HALF + floor(rest / window)
  parts = parts + rest % window
  if parts >= window then tokens, parts = tokens + 1, parts - window end
  if tokens >= limit then return limit, 0 end
  return tokens, parts
end

-- Read on first use and kept for the rest of the batch. A name is one word: one with spaces or line feeds could be made up
-- to read as lines of the table, or of the reply.
local plans = {}
local function plan_of(name)
  local plan = plans[name]
  if not plan then
    local ends = find(name, '^%l+$') and select(2, find(ARGV[2], '\n' .. name .. ' ', 1, true))
    local minute, day, after, within, length, mode = match(ARGV[2], '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)',
      (ends or #ARGV[2]) + 1)
    plan = { minute = read_limit(minute), day = read_limit(day), ban_after = read_limit(after),
      ban_within = read_limit(within), ban_seconds = read_limit(length), is_shadow = mode == 'shadow' }
    plans[name] = plan
  end
  return plan
end

local clock = tonumber(ARGV[1])
if not clock then
  local time = call('TIME')
  clock = tonumber(time[1]) * SECOND + tonumber(time[2])
end

-- When the grace of the secret before a rotation ends; 0 for any other secret.
local function old_secret_end(key, digest)
  local old = call('HMGET', key, 'old_secret', 'old_secret_until')
  return old[1] == digest and read_time(old[2]) or 0
end

local function describe(outcome, plan, now, minute_limit, minute_tokens, minute_parts, day_limit, day_tokens, day_parts,
    banned_until, ends_at, rejected)
  return format('%s %s %d %d %d %d %d %d %d %d %d%s', outcome, plan, now, minute_limit, minute_tokens, minute_parts,
    day_limit, day_tokens, day_parts, banned_until, ends_at, rejected)
end

local verdicts = {}

-- Decides `count` requests that present one key with one secret. @return what to say to all of them where the key is good
-- for nothing. All in one function, for a table of what the key has would cost a third more.
local function decide(key, digest, count)
  local fields = pcall('HMGET', key, 'secret', 'disabled', 'expires_at', 'plan', 'minute', 'day',
    'as_of', 'minute_left', 'day_left', 'patience_left', 'banned_until', 'admitted', 'refused')
  if fields.err then return 'unreadable' end
  local secret, disabled, expires_at, plan_name, own_minute, own_day, as_of, minute_left, day_left, patience_left,
    banned_until, admitted, refused = unpack(fields)

  as_of = read_time(as_of)
  local last = as_of
  if as_of and as_of > clock + JITTER then as_of = clock end
  local now = as_of and as_of > clock and as_of or clock

  -- Who is it?
  if not secret then return call('EXISTS', key) == 1 and 'unreadable' or 'unknown' end
  local ends_at = digest == secret and 0 or old_secret_end(key, digest)
  if digest ~= secret and ends_at <= now then return 'unknown' end
  if disabled and disabled ~= '' and disabled ~= '0' then return 'disabled' end
  if expires_at and expires_at ~= '' then
    local expiry = read_time(expires_at)
    if not expiry then return 'unreadable' end
    if expiry <= now then return 'expired' end
    if ends_at == 0 or expiry < ends_at then ends_at = expiry end
  end

  -- What may it?
  local plan = plan_of(plan_name or '')
  local minute_limit, day_limit, rejected = read_limit(own_minute), read_limit(own_day), ''
  if own_minute and not minute_limit then rejected = rejected .. ' minute' end
  if own_day and not day_limit then rejected = rejected .. ' day' end
  minute_limit, day_limit = minute_limit or plan.minute, day_limit or plan.day
  local ban_after, ban_within = plan.ban_after, plan.ban_within
  if not (minute_limit and day_limit and ban_after and ban_within and plan.ban_seconds) then return 'misconfigured' end

  -- What is left of it?
  local elapsed = as_of and now - as_of or DAY
  local minute_tokens, minute_parts = refill(minute_left, minute_limit, MINUTE, elapsed)
  local day_tokens, day_parts = refill(day_left, day_limit, DAY, elapsed)
  banned_until = read_time(banned_until) or 0
  -- Patience counts whole seconds, the unit in which it is set; who was never refused has all of it.
  local seconds = as_of and floor(now / SECOND) - floor(as_of / SECOND) or ban_within
  local patience, patience_parts = refill(patience_left, ban_after, ban_within, seconds)

  if count == 0 then
    verdicts[#verdicts + 1] = describe(banned_until > now and 'banned' or 'admitted', plan_name, now, minute_limit,
      minute_tokens, minute_parts, day_limit, day_tokens, day_parts, banned_until, rejected)
    return
  end

  -- Both buckets or neither. In shadow mode a refusal goes through, and counts as what it is: a request that did. Any other
  -- is a strike, and the last one bans: for twice as long as the last time, if that is over for less than a day.
  local more_admitted, more_refused, more_shadowed, bans = 0, 0, 0, nil
  for _ = 1, count do
    local outcome = 'banned'
    if banned_until > now then
      -- It changes nothing.
    elseif minute_tokens >= 1 and day_tokens >= 1 then
      outcome, more_admitted = 'admitted', more_admitted + 1
      minute_tokens, day_tokens = minute_tokens - 1, day_tokens - 1
    elseif plan.is_shadow then
      outcome, more_admitted, more_shadowed = 'shadowed', more_admitted + 1, more_shadowed + 1
    else
      more_refused = more_refused + 1
      patience = max(patience - 1, 0)
      if patience >= 1 then
        outcome = 'refused'
      else
        local in_series = banned_until > 0 and now < banned_until + SERIES
        bans = in_series and read_count(call('HGET', key, 'bans')) + 1 or 1
        banned_until = now + min(plan.ban_seconds * SECOND * 2 ^ min(bans - 1, MAX_DOUBLINGS), LONGEST_BAN)
      end
    end
    verdicts[#verdicts + 1] = describe(outcome, plan_name, now, minute_limit, minute_tokens, minute_parts,
      day_limit, day_tokens, day_parts, banned_until, ends_at, rejected)
  end

  -- What has changed?
  if more_admitted + more_refused == 0 then return end
  local changes = { 'as_of', write_time(now), 'minute_left', write_level(minute_tokens, minute_parts, MINUTE),
    'day_left', write_level(day_tokens, day_parts, DAY) }
  if more_admitted > 0 then add(changes, 'admitted', format('%d', read_count(admitted) + more_admitted)) end
  if more_refused > 0 then add(changes, 'refused', format('%d', read_count(refused) + more_refused)) end
  if more_shadowed > 0 then
    add(changes, 'shadowed', format('%d', read_count(call('HGET', key, 'shadowed')) + more_shadowed))
  end
  if patience_left or more_refused > 0 then
    add(changes, 'patience_left', write_level(patience, patience_parts, ban_within))
  end
  if bans then
    add(changes, 'banned_until', write_time(banned_until))
    add(changes, 'bans', format('%d', bans))
  end
  note_use(key, changes, last, now, admitted, refused)
  call('HSET', key, unpack(changes))
end

for i = 1, #KEYS do
  local count = tonumber(ARGV[2 + 2 * i])
  local nothing = decide(KEYS[i], ARGV[1 + 2 * i], count)
  if nothing then
    for _ = 1, max(count, 1) do verdicts[#verdicts + 1] = nothing end
  end
end
return verdicts
