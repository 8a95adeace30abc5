#!lua
-- Claims an event of a key for a day: only one of all gateways reports it. Nothing is written for a key that does not
-- exist.
--
-- KEYS[1]  the key's hash
-- ARGV[1]  the field with the day on which the event was last claimed
-- ARGV[2]  the day (UTC, days since 1970)
--
-- reply    1; 0 if there is no such key, or the event is claimed for this day or the next:
--          an event can wait past midnight

local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return 0 end
local claimed = tonumber(call('HGET', KEYS[1], ARGV[1]) or '')
local day = tonumber(ARGV[2])
if claimed == day or claimed == day + 1 then return 0 end
call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
