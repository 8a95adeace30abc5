-- The limit headers for a client, as gateway/pipeline/client-http.ts derives them.

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local MINUTE, DAY = 60, 86400

local limits = {}

-- Seconds until a bucket holds `target` tokens; 0 if it already does.
local function wait_for(target, level, limit, window)
  return max((target - level) * window / limit, 0)
end

-- Sets all limit headers from a reply of decide-one.lua, and Retry-After only if the request was not admitted.
function limits.set(header, reply)
  local outcome, now = reply[1], tonumber(reply[3])
  local minute, minute_level, day, day_level = tonumber(reply[4]), tonumber(reply[5]), tonumber(reply[6]), tonumber(reply[7])
  local minute_tokens, day_tokens = floor(minute_level), floor(day_level)
  local is_admitted, is_banned = outcome == 'admitted', outcome == 'banned'

  local limit, level, tokens, window = minute, minute_level, minute_tokens, MINUTE
  local minute_wait, day_wait = wait_for(1, minute_level, minute, MINUTE), wait_for(1, day_level, day, DAY)
  if is_admitted and day_tokens < minute_tokens or not is_admitted and day_wait > minute_wait then
    limit, level, tokens, window = day, day_level, day_tokens, DAY
  end

  local banned_until = tonumber(reply[8])
  local reset = is_banned and banned_until or now + wait_for(limit, level, limit, window)
  header['X-RateLimit-Limit'] = limit
  header['X-RateLimit-Remaining'] = is_banned and 0 or tokens
  header['X-RateLimit-Reset'] = ceil(reset)

  local retry_after
  if not is_admitted then
    retry_after = max(1, ceil(max(minute_wait, day_wait, is_banned and banned_until - now or 0)))
    header['Retry-After'] = retry_after
  end

  header['RateLimit-Policy'] = '"minute";q=' .. minute .. ';w=60, "day";q=' .. day .. ';w=86400'
  if is_banned then
    header['RateLimit'] = '"minute";r=0;t=' .. retry_after .. ', "day";r=0;t=' .. retry_after
  else
    local minute_more = ceil(wait_for(min(minute_tokens + 1, minute), minute_level, minute, MINUTE))
    local day_more = ceil(wait_for(min(day_tokens + 1, day), day_level, day, DAY))
    header['RateLimit'] = '"minute";r=' .. minute_tokens .. ';t=' .. minute_more .. ', "day";r=' .. day_tokens .. ';t='
      .. day_more
  end
end

-- Sets the headers for a caller without a key, which has sent `count` requests of its 60 in the minute that ends at
-- `reset`.
function limits.set_of_address(header, count, reset)
  header['X-RateLimit-Limit'] = 60
  header['X-RateLimit-Remaining'] = max(60 - count, 0)
  header['X-RateLimit-Reset'] = reset
  if count > 60 then header['Retry-After'] = max(1, reset - floor(ngx.now())) end
end

return limits
