#!lua flags=allow-oom
-- Revokes a key: a mark and its use are kept for a while under another name, and everything else is deleted. This is
-- one step, so that no decision is missing from the use. It also runs when Redis is out of memory, because it frees
-- some.
--
-- KEYS[1]  the key's hash, or any value put there by hand
-- KEYS[2]  the hash of its use; behind it the streams of the notes
-- ARGV[1]  notes (add-notes.lua)
-- ARGV[2]  seconds after which mark and use expire
-- ARGV[3]  and following: names of the fields that are kept
--
-- reply    { 1, the notes that are lost }, or nil if there was no key

local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return nil end
-- Another value there, put by hand, would cause an error, and the key would stay valid.
call('DEL', KEYS[2])
-- The mark: without it, a backup would restore a key that has none of the fields.
call('HSET', KEYS[2], 'revoked', '1')
if call('TYPE', KEYS[1]).ok == 'hash' then
  for at = 3, #ARGV do
    local value = call('HGET', KEYS[1], ARGV[at])
    if value then call('HSET', KEYS[2], ARGV[at], value) end
  end
end
call('EXPIRE', KEYS[2], ARGV[2])
call('DEL', KEYS[1])
return { 1, add_notes(ARGV[1]) }
