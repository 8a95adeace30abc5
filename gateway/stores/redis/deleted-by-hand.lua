#!lua
-- Tells once that a listed key does not exist, although nobody has revoked it.
--
-- KEYS[1]  the key's hash
-- KEYS[2]  the hash of its use, which keeps that it was told; behind it the streams of the notes
-- ARGV[1]  notes (add-notes.lua)
--
-- reply    { 1, the notes that are lost }, or nil if the key exists, was revoked, or its end was told before

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('EXISTS', KEYS[2]) == 1 then return nil end
redis.call('HSET', KEYS[2], 'deleted_by_hand', '1')
return { 1, add_notes(ARGV[1]) }
