-- The decision that nginx requests from Redis, one request per call: key and secret, ban, both token buckets, strikes.
-- It follows the rules of gateway/limiter/decide.lua and is as short as they allow for a single request: levels are
-- plain doubles, the plan is read only if a key has no limits of its own, only a refusal touches strikes, and a
-- secret's scope and networks are not read.
--
-- KEYS[1]   hash of the API key
-- ARGV[1]   SHA-256, in hex, of the secret presented
--
-- reply     { 'unknown' | 'disabled' | 'expired' }
--           { 'admitted' | 'refused' | 'banned', plan, now, minute limit, level, day limit, level, banned until }
--           times are Unix seconds and levels are tokens, both as text

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

local ban = redis.call('HMGET', 'gateway:plans', plan .. '.ban_after', plan .. '.ban_grace_seconds',
  plan .. '.ban_seconds')
local past = redis.call('HMGET', KEYS[1], 'line_until', 'strikes_until', 'full_at', 'refused', 'bans')
local text = function(time) return string.format('%.6f', time) end
local strike = MINUTE / (8 * minute_limit)
local most = (ban[1] or 5 * minute_limit) * strike
local strikes = math.max((past[2] or now) - now, 0)
local full_at = strikes > 0 and past[3] or strikes + strike > most and now
local outcome = 'refused'
if strikes + strike > most and now - full_at >= (tonumber(ban[2]) or 30) then
  local is_series = banned_until and now < banned_until + DAY
  local bans = is_series and (past[5] or 0) + 1 or 1
  banned_until = text(now + math.min(ban[3] * 2 ^ math.min(bans - 1, 17), DAY))
  redis.call('HSET', KEYS[1], 'banned_until', banned_until, 'bans', bans)
  redis.call('HDEL', KEYS[1], 'line_until', 'strikes_until', 'full_at')
  outcome = 'banned'
else
  local token = math.max((1 - minute_level) * MINUTE / minute_limit, (1 - day_level) * DAY / day_limit)
  local line = math.max(now + token, math.min((past[1] or now) + MINUTE / minute_limit, now + 15 * MINUTE))
  redis.call('HSET', KEYS[1], 'line_until', text(line), 'strikes_until', text(now + math.min(strikes + strike, most)))
  if full_at then redis.call('HSET', KEYS[1], 'full_at', text(full_at)) end
end
redis.call('HSET', KEYS[1], 'as_of', text(now), 'minute_left', text(minute_level), 'day_left', text(day_level), 'refused',
  string.format('%d', (past[4] or 0) + 1))
return answer(outcome)
