#!lua flags=allow-oom
-- Revokes a key: what it has used stays for a while under another name, and all else is gone, in one step, so that no
-- decision is missing there. Where memory is short too, for it gives some back.
--
-- KEYS[1]  the key's hash, or whatever a hand has put in its place
-- KEYS[2]  the hash of what it has used
-- ARGV[1]  seconds after which that is gone
-- ARGV[2]  the rest: names of the fields that stay
--
-- reply    1, or 0 where there was no key

local call = redis.call
if call('TYPE', KEYS[1]).ok == 'hash' then
  -- Whatever else a hand has put there would be an error in the way, and the key go on working.
  call('DEL', KEYS[2])
  for at = 2, #ARGV do
    local value = call('HGET', KEYS[1], ARGV[at])
    if value then call('HSET', KEYS[2], ARGV[at], value) end
  end
  call('EXPIRE', KEYS[2], ARGV[1])
end
return call('DEL', KEYS[1])
