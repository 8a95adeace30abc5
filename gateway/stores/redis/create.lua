#!lua
-- Writes a new key's hash, unless it was called off (call-off.lua): a late write must do nothing.
--
-- KEYS[1]  the key's hash
-- KEYS[2]  the hash of its use; behind it the streams of the notes
-- ARGV[1]  notes (add-notes.lua)
-- ARGV[2]  and following: fields and values, alternating
--
-- reply    { 1, the notes that are lost }, or nil if it was called off

if redis.call('EXISTS', KEYS[2]) == 1 then return nil end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return { 1, add_notes(ARGV[1]) }
