#!lua
-- Claims an event of a key for a day: only one of all gateways reports it. Nothing is written for a key that does not
-- exist.
--
-- KEYS[1]  the key's hash
-- ARGV[1]  the field with the last claim: its day and its claimant
-- ARGV[2]  the day (UTC, days since 1970)
-- ARGV[3]  the claimant: its claim may have been executed before, without an answer in time
--
-- reply    1; 0 if there is no such key, or another has claimed the event for this day or the next:
--          an event can wait past midnight

local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return 0 end
local claim = ARGV[2] .. ' ' .. ARGV[3]
local last = call('HGET', KEYS[1], ARGV[1]) or ''
if last == claim then return 1 end
local claimed = tonumber(string.match(last, '^%d+'))
local day = tonumber(ARGV[2])
if claimed == day or claimed == day + 1 then return 0 end
call('HSET', KEYS[1], ARGV[1], claim)
return 1
