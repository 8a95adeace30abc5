#!lua
-- Decides a batch of requests in order, in one atomic step. Requests with the same key and secret are decided together:
-- the key's data is read once and written once.
--
-- KEYS[i]           hash of the presented API key
-- ARGV[1]           Unix time in microseconds, or '' for the server's clock
-- ARGV[2]           plan table; each plan is one line after a line feed: name minute=60 day=1000 …
--                   A field that the plan does not have is left out.
-- ARGV[1 + 2 * i]   SHA-256 of the presented secret, in hex
-- ARGV[2 + 2 * i]   number of requests. 0 peeks: one verdict, nothing is taken or written.
--                   For a secret bound to a scope or to networks: 'count scope address', with the required scope
--                   or '-', and the address in the format of networks.ts or '-'
--
-- reply             one verdict for each request, in the order of the keys. Each is a text of words separated by
--                   spaces: one text is cheaper for both sides than a list.
--   unknown | disabled | expired | elsewhere | misconfigured | unreadable
--   bound: the secret is bound, but scope and address were not given; nothing was decided
--   admitted | shadowed | refused | banned | forbidden, plan, now in microseconds, minute limit, tokens, fraction,
--     day limit, tokens, fraction, banned_until in microseconds, retry_at in microseconds (0 when admitted),
--     end of the credential in microseconds (0 = none), bounds of the secret ('scope;networks', or '-'),
--     names of override fields that hold no limit
--
-- The hash holds times as decimal Unix seconds and levels as decimal tokens, in a form that people can read. The script
-- uses integers: microseconds, whole tokens, and a fraction counted in 1/window of a token. Nothing is rounded
-- (bucket.ts says why). Replies are texts because Redis truncates Lua's floats. Everything is checked before anything
-- is written: Redis does not roll back. The first line (Redis 7) makes Redis check first: if it would refuse a write
-- (out of memory, too few replicas, or a read-only replica), the script does not start.

local SECOND, MINUTE, DAY = 1000000, 60000000, 86400000000
local LONGEST_BAN, SERIES, MAX_DOUBLINGS = DAY, DAY, 17
local LONGEST_NOTICE, LEEWAY, SHARES_TO_NOTICE, USUAL_MINUTE, FEW = 50 * SECOND, SECOND / 4, 60, 1000, 10
local MINUTES_KEPT, DAYS_KEPT, LONGEST_MARKS = 61, 36, 4096
-- What follows the eight characters of a secret's id, if it has no end, no scope and no networks.
local USUAL_SECRET, USUAL_PLACE = ' - read,write - ', 9
local MAX_LIMIT, HALF, DECIMALS, LATEST = 1000000000, 32768, 1000000000000, 10000000000

local call, pcall = redis.call, redis.pcall
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local find, match, gmatch, sub, format, tonumber = string.find, string.match, string.gmatch, string.sub, string.format, tonumber

-- People type these numbers: plain digits, 1 to 10^9, otherwise nil. tonumber alone accepts nan, inf, 0x3C and 6e1.
-- Many keys have the same limits, so each text is read once a batch.
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

-- Usage (usage-marks.ts): adds a mark with the totals before the first decision of a minute or a day, and drops old
-- marks. The marks are in the key's own hash: during a slot migration a second key might not be available. A damaged
-- list starts again.
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

-- Twelve decimals distinguish any two fractions, even of the longest window.
local function write_level(tokens, fraction, window)
  return format('%d.%012d', tokens, floor(fraction / window * DECIMALS + 0.5))
end

-- The level in `text` after `elapsed` ticks. A missing or unreadable level counts as full: this gives away at most one
-- capacity.
local function refill(text, limit, window, elapsed)
  if not text or elapsed >= window then return limit, 0 end
  local tokens, decimals = match(text, '^(%d+)%.?(%d*)$')
  if not tokens or #tokens > 10 or #decimals > 12 then return limit, 0 end
  tokens = tonumber(tokens)
  local fraction = decimals == '' and 0 or floor(tonumber(decimals) / 10 ^ #decimals * window + 0.5)
  -- elapsed * limit / window. The product can exceed 2^53, so it is computed in two halves that stay below.
  local high = elapsed * floor(limit / HALF)
  local rest = (high % window) * HALF + elapsed * (limit % HALF)
  tokens = tokens + floor(high / window) * HALF + floor(rest / window)
  fraction = fraction + rest % window
  if fraction >= window then tokens, fraction = tokens + 1, fraction - window end
  if tokens >= limit then return limit, 0 end
  return tokens, fraction
end

-- Ticks until the bucket holds `wanted` tokens, or is full.
local function ticks_until(wanted, limit, window, tokens, fraction)
  local missing = min(wanted, limit) - tokens
  if missing <= 0 then return 0 end
  -- window * missing / limit, in two halves as above.
  local high = window * floor(missing / HALF)
  local rest = (high % limit) * HALF + window * (missing % HALF)
  return floor(high / limit) * HALF + floor(rest / limit) + ceil((rest % limit - fraction) / limit)
end

-- The queue of a key: fifteen integers. queue.ts explains its purpose and fields. Nil if it is missing, unreadable, or
-- old enough to be forgotten.
local QUEUE = '^' .. string.rep('(%d+) ', 14) .. '(%d+)$'
local function read_queue(text, now, shift)
  if not text or #text < 29 or #text > 240 then return nil end
  local free, due, waiting, first, every, grouped, group_at, earlier, earlier_at, forget_at, since, moment, moments, early,
    recent = match(text, QUEUE)
  if not free or tonumber(forget_at) - shift <= now then return nil end
  return { free = tonumber(free), due = tonumber(due), waiting = tonumber(waiting),
    first = max(tonumber(first) - shift, 0), every = max(tonumber(every), 1), grouped = tonumber(grouped),
    group_at = max(tonumber(group_at) - shift, 0), earlier = tonumber(earlier),
    earlier_at = max(tonumber(earlier_at) - shift, 0), forget_at = tonumber(forget_at) - shift,
    since = max(tonumber(since) - shift, 0), moment = max(tonumber(moment) - shift, 0), moments = tonumber(moments),
    early = tonumber(early), recent = tonumber(recent) }
end

local function write_queue(q)
  return q and format('%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d', q.free, q.due, q.waiting, q.first, q.every,
    q.grouped, q.group_at, q.earlier, q.earlier_at, q.forget_at, q.since, q.moment, q.moments, q.early, q.recent) or ''
end

-- How early requests are judged: the ticks for which they are remembered, how many are tolerated in that time, and how
-- many count in one second. The tolerance scales with a key's own minute limit.
local function patience_of(plan, minute_limit)
  local window = floor(plan.ban_within_seconds * SECOND * 5 / 6)
  local most = floor(max(min(plan.ban_after, FEW), plan.ban_after * minute_limit / (plan.minute or USUAL_MINUTE)))
  if most < FEW then return window, most, most end
  local borne = floor(most * 5 / 4)
  return window, borne, ceil(borne * 5 / (2 * plan.ban_within_seconds))
end

-- Makes waiters due whose time has come. Forgets the early requests of a window that has ended.
local function advance(q, now, window)
  local in_line = now + (q.every < LEEWAY and 0 or min(LEEWAY, floor(q.every / 4)))
  if q.waiting > 0 and in_line >= q.first then
    local more = min(q.waiting, floor((in_line - q.first) / q.every) + 1)
    q.due, q.waiting, q.first = q.due + more, q.waiting - more, q.first + more * q.every
  end
  if q.grouped > 0 and now + LEEWAY >= q.group_at then q.due, q.grouped = q.due + q.grouped, 0 end
  if q.earlier > 0 and now + LEEWAY >= q.earlier_at then q.due, q.earlier = q.due + q.earlier, 0 end
  if q.moments > 0 and now >= q.since + window then q.moments, q.early = 0, 0 end
end

local function is_on_notice(q, borne)
  return q.moments >= (borne < FEW and 1 or q.every >= SECOND and 2 or 3) and q.early * SHARES_TO_NOTICE >= borne
end

-- Assigns a request to a due or free client. Otherwise, if others wait, counts it as early. @return whether it is early
local function is_early(q, now, is_there, borne, most_a_second)
  if q.due > 0 and (is_there or q.free == 0) then q.due = q.due - 1 return false end
  if q.free > 0 then q.free = q.free - 1 return false end
  if q.waiting + q.grouped + q.earlier == 0 then return false end
  local was_on_notice = is_on_notice(q, borne)
  if q.moments == 0 then q.since = now end
  if q.moments == 0 or now >= q.moment + SECOND then q.moment, q.moments, q.recent = now, q.moments + 1, 0 end
  if q.recent < most_a_second then q.recent, q.early = q.recent + 1, q.early + 1 end
  if not was_on_notice and is_on_notice(q, borne) then q.since = now end
  return true
end

-- Whether the group comes within half of the time until `at` and can be set apart. Only one group is set apart at a
-- time.
local function is_much_sooner(q, now, at)
  return q.grouped > 0 and q.earlier == 0 and 2 * (q.group_at - now) < at - now
end

-- When requests refused on notice are told to come: with the group, or when the notice ends if the group comes much
-- sooner.
local function hold_until(q, now, window)
  local ends = min(q.since + window, now + LONGEST_NOTICE)
  return (q.grouped == 0 or is_much_sooner(q, now, ends)) and ends or q.group_at
end

-- Seconds that a request must wait: for its place behind all who wait; on notice, at least until the notice ends.
local function seconds_to_wait(q, now, minute_limit, minute_tokens, minute_fraction, day_limit, day_tokens, day_fraction,
    on_notice, window)
  local place = q and q.due + q.waiting + q.grouped + q.earlier + 1 or 1
  local wanted = min(place, minute_limit)
  local minute_wait = ticks_until(wanted, minute_limit, MINUTE, minute_tokens, minute_fraction)
  local day_wait = ticks_until(wanted, day_limit, DAY, day_tokens, day_fraction)
  local every = max(1, day_wait > minute_wait and floor(DAY / day_limit) or floor(MINUTE / minute_limit))
  local wait = max(minute_wait, day_wait, on_notice and hold_until(q, now, window) - now or 0)
  return max(1, ceil(wait / SECOND)), place, every
end

-- Adds one waiter to the queue, who was told to come at `at`.
local function join(q, now, at, place, most, every, on_notice)
  local is_behind = q.waiting > 0 and q.every == every and at > q.first + q.waiting * every
  if on_notice or place > most or is_behind then
    if is_much_sooner(q, now, at) then q.earlier, q.earlier_at, q.grouped = q.grouped, q.group_at, 0 end
    q.group_at = q.grouped == 0 and at or min(q.group_at, at)
    q.grouped = q.grouped + 1
  else
    if q.waiting > 0 and q.every ~= every then q.due, q.waiting = q.due + q.waiting, 0 end
    q.first = q.waiting == 0 and at or max(0, min(q.first, at - q.waiting * every))
    q.every, q.waiting = every, q.waiting + 1
  end
  q.forget_at = max(q.forget_at, now + 2 * max(at - now, MINUTE))
end

-- Read on first use and kept for the rest of the batch. A name must be one word: with spaces or line feeds it could
-- imitate lines of the table or of the reply.
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

-- Written for each key that is decided now.
local clock_text, clock_minute = write_time(clock), format('%d', floor(clock / MINUTE) * 60)

-- Whether an address is in one of the networks: IP version, hex digits of the prefix, its length in bits (networks.ts).
local function is_within(networks, address)
  if address == '-' then return false end
  for network in gmatch(networks, '[^,]+') do
    local digits, bits = match(network, '^([46]:%x*)/(%d%d?%d?)$')
    local whole, rest = 2 + floor((bits or 0) / 4), (bits or 0) % 4
    -- A malformed network has no address in it.
    if bits and #digits == 2 + ceil(bits / 4) and sub(digits, 1, whole) == sub(address, 1, whole) then
      local own, other = tonumber(sub(digits, whole + 1, whole + 1), 16), tonumber(sub(address, whole + 1, whole + 1), 16)
      if rest == 0 or own and other and floor(own / 2 ^ (4 - rest)) == floor(other / 2 ^ (4 - rest)) then return true end
    end
  end
  return false
end

local function describe(outcome, plan, now, minute_limit, minute_tokens, minute_fraction, day_limit, day_tokens, day_fraction,
    banned_until, retry_at, rest)
  return format('%s %s %d %d %d %d %d %d %d %d %d%s', outcome, plan, now, minute_limit, minute_tokens, minute_fraction,
    day_limit, day_tokens, day_fraction, banned_until, retry_at, rest)
end

local verdicts = {}

-- The last good value of a field into which somebody has typed a bad one (key-hash.ts).
-- @return false if no gateway has written the key; nil if the field had no value
local function kept_value(key, field)
  local text = call('HGET', key, 'kept')
  if not text then return false end
  return match(text, '\n' .. field .. '=([^\n]*)')
end

-- Decides `count` requests with the same key and secret. @return one verdict for all of them if the key is not usable.
-- This is one function: a table for the key's data would cost a third more.
local function decide(key, digest, count, wanted, address)
  local fields = pcall('HMGET', key, 'secret:' .. digest, 'used:' .. digest, 'disabled', 'expires_at', 'plan', 'minute', 'day',
    'as_of', 'minute_left', 'day_left', 'waiting', 'banned_until', 'admitted', 'refused')
  if fields.err then return 'unreadable' end
  local secret, used, disabled, expires_at, plan_name, own_minute, own_day, as_of, minute_left, day_left, waiting,
    banned_until, admitted, refused = unpack(fields)

  -- If the clock was set back, all stored times are moved back too, so that nothing lasts longer.
  as_of = read_time(as_of)
  local last, now, shift = as_of, clock, 0
  if as_of and as_of > clock then as_of, shift = clock, as_of - clock end

  -- Identify the key and secret.
  if not secret then
    return (call('EXISTS', key) == 0 or call('HGET', key, 'secrets')) and 'unknown' or 'unreadable'
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
    if ends_at > 0 and ends_at <= now then return 'expired' end
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

  -- Find the limits.
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
  minute_limit, day_limit = minute_limit or plan.minute, day_limit or plan.day
  if not (minute_limit and day_limit and plan.ban_after and plan.ban_within_seconds and plan.ban_seconds) then
    return 'misconfigured'
  end

  local rest = ends_at == 0 and bounds == '-' and rejected == '' and ' 0 -' or format(' %d %s%s', ends_at, bounds, rejected)

  -- Compute the levels.
  local elapsed = as_of and now - as_of or DAY
  local minute_tokens, minute_fraction = refill(minute_left, minute_limit, MINUTE, elapsed)
  local day_tokens, day_fraction = refill(day_left, day_limit, DAY, elapsed)
  banned_until = read_time(banned_until) or 0
  local is_decided = false
  if shift > 0 and banned_until > 0 and (read_time(call('HGET', key, 'ban_reason_until')) or 0) ~= banned_until then
    is_decided = (read_time(call('HGET', key, 'ban_decided')) or 0) == banned_until
    banned_until = max(banned_until - shift, 0)
  end

  local queue, had_queue = read_queue(waiting, now, shift), waiting and waiting ~= ''
  local window, borne, most_a_second

  -- A request takes from both buckets or from neither. In shadow mode every request is admitted and counted as
  -- admitted. On notice, tokens are kept for those who wait. An early request that is refused can cause a ban. A ban
  -- that begins less than a day after the last one ended is twice as long.
  local more_admitted, more_refused, more_shadowed, bans = 0, 0, 0, nil
  for _ = 1, max(count, 1) do
    local outcome, retry_at = 'banned', 0
    local is_there = minute_tokens >= 1 and day_tokens >= 1
    if queue then
      if not borne then window, borne, most_a_second = patience_of(plan, minute_limit) end
      advance(queue, now, window)
    end
    if banned_until > now then
      retry_at = banned_until
    elseif not is_allowed then
      outcome = 'forbidden'
    elseif count == 0 then
      local on_notice = queue and is_on_notice(queue, borne) or false
      local is_held = on_notice and queue.free + queue.due == 0 and queue.waiting + queue.grouped + queue.earlier > 0
      outcome = (is_there and not is_held or plan.mode == 'shadow') and 'admitted' or 'refused'
      if outcome == 'refused' then
        retry_at = now + SECOND * seconds_to_wait(queue, now, minute_limit, minute_tokens, minute_fraction, day_limit,
          day_tokens, day_fraction, on_notice, window)
      end
    elseif plan.mode == 'shadow' then
      outcome, more_admitted = is_there and 'admitted' or 'shadowed', more_admitted + 1
      if is_there then
        minute_tokens, day_tokens = minute_tokens - 1, day_tokens - 1
      else
        more_shadowed = more_shadowed + 1
      end
    else
      local early = queue and is_early(queue, now, is_there, borne, most_a_second)
      local on_notice = queue and is_on_notice(queue, borne) or false
      if is_there and not (early and on_notice) then
        outcome, more_admitted = 'admitted', more_admitted + 1
        minute_tokens, day_tokens = minute_tokens - 1, day_tokens - 1
        if queue then queue.free = queue.free + 1 end
      elseif early and on_notice and queue.early >= borne then
        more_refused = more_refused + 1
        local in_series = banned_until > 0 and now < banned_until + SERIES
        bans = in_series and read_count(call('HGET', key, 'bans')) + 1 or 1
        banned_until = now + min(plan.ban_seconds * SECOND * 2 ^ min(bans - 1, MAX_DOUBLINGS), LONGEST_BAN)
        retry_at, queue = banned_until, nil
      else
        outcome, more_refused = 'refused', more_refused + 1
        queue = queue or { free = 0, due = 0, waiting = 0, first = 0, every = 1, grouped = 0, group_at = 0, earlier = 0,
          earlier_at = 0, forget_at = 0, since = 0, moment = 0, moments = 0, early = 0, recent = 0 }
        local seconds, place, every = seconds_to_wait(queue, now, minute_limit, minute_tokens, minute_fraction,
          day_limit, day_tokens, day_fraction, on_notice, window)
        retry_at = now + seconds * SECOND
        join(queue, now, retry_at, place, min(minute_limit, day_limit), every, on_notice)
      end
    end
    verdicts[#verdicts + 1] = describe(outcome, plan_name, now, minute_limit, minute_tokens, minute_fraction,
      day_limit, day_tokens, day_fraction, banned_until, retry_at, rest)
  end

  -- Write what has changed.
  if count == 0 then return end
  if more_admitted + more_refused == 0 then
    if shift > 0 then
      call('HSET', key, 'as_of', write_time(now), 'banned_until', write_time(banned_until), 'waiting', write_queue(queue))
      if is_decided then call('HSET', key, 'ban_decided', write_time(banned_until)) end
    end
    return
  end
  local changes = { 'as_of', now == clock and clock_text or write_time(now), 'minute_left', write_level(minute_tokens, minute_fraction, MINUTE),
    'day_left', write_level(day_tokens, day_fraction, DAY) }
  if more_admitted > 0 then add(changes, 'admitted', format('%d', read_count(admitted) + more_admitted)) end
  if more_refused > 0 then add(changes, 'refused', format('%d', read_count(refused) + more_refused)) end
  if more_shadowed > 0 then
    add(changes, 'shadowed', format('%d', read_count(call('HGET', key, 'shadowed')) + more_shadowed))
  end
  if queue or had_queue then add(changes, 'waiting', write_queue(queue)) end
  if bans or shift > 0 and banned_until > 0 then add(changes, 'banned_until', write_time(banned_until)) end
  if bans or is_decided then add(changes, 'ban_decided', write_time(banned_until)) end
  if bans then add(changes, 'bans', format('%d', bans)) end
  local this_minute = now == clock and clock_minute or format('%d', floor(now / MINUTE) * 60)
  if used ~= this_minute then add(changes, 'used:' .. digest, this_minute) end
  note_use(key, changes, last, now, admitted, refused)
  call('HSET', key, unpack(changes))
end

for i = 1, #KEYS do
  local count, wanted, address = tonumber(ARGV[2 + 2 * i]), nil, nil
  if not count then
    count, wanted, address = match(ARGV[2 + 2 * i], '^(%d+) (%S+) (%S+)$')
    count = tonumber(count)
  end
  local nothing = decide(KEYS[i], ARGV[1 + 2 * i], count, wanted, address)
  if nothing then
    for _ = 1, max(count, 1) do verdicts[#verdicts + 1] = nothing end
  end
end
return verdicts
