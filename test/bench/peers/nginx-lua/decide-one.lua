-- The decision that nginx asks of Redis, one request a call: key and secret, ban, both token buckets, strikes. It holds to
-- the rules of gateway/limiter/decide.lua and is as short as they allow for a single request: levels are plain doubles, the
-- plan is read only where a key has no limits of its own, patience is touched only by a refusal, and a secret's scope and
-- networks are not read.
--
-- KEYS[1]   hash of the API key
-- ARGV[1]   SHA-256, in hex, of the secret presented
--
-- reply     { 'unknown' | 'disabled' | 'expired' }
--           { 'admitted' | 'refused' | 'banned', plan, now, minute limit, level, day limit, level, banned until }
--           with times in Unix seconds and levels in tokens, both as text

local MINUTE, DAY = 60, 86400

local plan, secret, disabled, expires_at, minute, day, minute_left, day_left, as_of, banned_until, admitted =
  unpack(redis.call('HMGET', KEYS[1], 'plan', 'secret:' .. ARGV[1], 'disabled', 'expires_at', 'minute', 'day',
    'minute_left', 'day_left', 'as_of', 'banned_until', 'admitted'))

local time = redis.call('TIME')
local now = math.max(time[1] + time[2] / 1000000, tonumber(as_of or 0))

if not secret then return { 'unknown' } end
local ends = tonumber(string.match(secret, '^%w+ (%S+)'))
if ends and ends <= now then return { 'expired' } end
if disabled and disabled ~= '' and disabled ~= '0' then return { 'disabled' } end
if expires_at and tonumber(expires_at) <= now then return { 'expired' } end

if not (minute and day) then
  local limits = redis.call('HMGET', 'gateway:plans', plan .. '.minute', plan .. '.day')
  minute, day = minute or limits[1], day or limits[2]
end
local minute_limit, day_limit = tonumber(minute), tonumber(day)

local elapsed = as_of and now - as_of or DAY
local minute_level = math.min(minute_limit, (minute_left or minute_limit) + elapsed * minute_limit / MINUTE)
local day_level = math.min(day_limit, (day_left or day_limit) + elapsed * day_limit / DAY)

local function answer(outcome)
  return { outcome, plan, string.format('%.6f', now), minute, string.format('%.6f', minute_level), day,
    string.format('%.6f', day_level), banned_until or '0' }
end

if banned_until and tonumber(banned_until) > now then return answer('banned') end

if minute_level >= 1 and day_level >= 1 then
  minute_level, day_level = minute_level - 1, day_level - 1
  redis.call('HSET', KEYS[1], 'as_of', string.format('%.6f', now), 'minute_left', string.format('%.6f', minute_level),
    'day_left', string.format('%.6f', day_level), 'admitted', string.format('%d', (admitted or 0) + 1))
  return answer('admitted')
end

local ban = redis.call('HMGET', 'gateway:plans', plan .. '.ban_after', plan .. '.ban_within_seconds',
  plan .. '.ban_seconds')
local strikes = redis.call('HMGET', KEYS[1], 'patience_left', 'patience_as_of', 'refused', 'bans')
local after, within = tonumber(ban[1]), tonumber(ban[2])
local since = now - (strikes[2] or now)
local patience = math.min(after, (strikes[1] or after) + since * after / within) - 1
local outcome = 'refused'
if patience < 1 then
  local is_series = banned_until and now < banned_until + DAY
  local bans = is_series and (strikes[4] or 0) + 1 or 1
  banned_until = string.format('%.6f', now + math.min(ban[3] * 2 ^ math.min(bans - 1, 17), DAY))
  redis.call('HSET', KEYS[1], 'banned_until', banned_until, 'bans', bans)
  outcome = 'banned'
end
redis.call('HSET', KEYS[1], 'as_of', string.format('%.6f', now), 'minute_left', string.format('%.6f', minute_level),
  'day_left', string.format('%.6f', day_level), 'patience_left', string.format('%.6f', patience), 'patience_as_of',
  string.format('%.6f', now), 'refused', string.format('%d', (strikes[3] or 0) + 1))
return answer(outcome)
