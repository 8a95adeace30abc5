#!lua
-- Writes a new key's hash, unless its issue was called off (call-off.lua): a write that arrives late must do nothing.
--
-- KEYS[1]  the key's hash
-- KEYS[2]  the hash of what it has used
-- ARGV     fields and values in turn
--
-- reply    1, or 0 where it was called off

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1
