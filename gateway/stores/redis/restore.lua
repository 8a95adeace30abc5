#!lua
-- Writes the hash of a key from a backup, only if there is none: an existing key stays unchanged, and a revoked key
-- stays revoked. A key deleted by hand comes back.
--
-- KEYS[1]  the key's hash
-- KEYS[2]  the hash of its use, which only a deleted key has
-- ARGV     fields and values, alternating
--
-- reply    restored | present | revoked

if redis.call('EXISTS', KEYS[1]) == 1 then return 'present' end
if redis.pcall('HGET', KEYS[2], 'deleted_by_hand') == '1' then redis.call('DEL', KEYS[2]) end
if redis.call('EXISTS', KEYS[2]) == 1 then return 'revoked' end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 'restored'
