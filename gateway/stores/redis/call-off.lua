#!lua flags=allow-oom
-- Checks whether a new key exists. If not, it is called off in the same step and can no longer be created.
--
-- KEYS[1]  the key's hash
-- KEYS[2]  the hash of its use, which only a deleted key has
-- ARGV[1]  seconds after which the mark expires; no write is that late
--
-- reply    1 if the key exists, 0 if it never will

if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
redis.call('HSET', KEYS[2], 'called_off', '1')
redis.call('EXPIRE', KEYS[2], ARGV[1])
return 0
