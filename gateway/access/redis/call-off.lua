#!lua flags=allow-oom
-- Says whether a new key is there. Where it is not, it is called off in the same step: it cannot come to be any more.
--
-- KEYS[1]  the key's hash
-- KEYS[2]  the hash of what it has used, which only a key that is no more has
-- ARGV[1]  seconds after which the mark is gone; no write is that late
--
-- reply    1 where the key is there, 0 where it never will be

if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
redis.call('HSET', KEYS[2], 'called_off', '1')
redis.call('EXPIRE', KEYS[2], ARGV[1])
return 0
