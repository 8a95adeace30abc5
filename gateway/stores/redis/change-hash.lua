#!lua
-- Changes fields of one hash if it is unchanged since it was read. This is one step: two people cannot overwrite each
-- other, and a key revoked meanwhile does not come back.
--
-- KEYS[1]  the hash; behind it the streams of the notes
-- ARGV[1]  notes (add-notes.lua)
-- ARGV[2]  JSON: { expect: { field: text, or false if it must not exist }, set: { field: text },
--          remove: { field: true } }
--
-- reply    { 1, the notes that are lost }, or nil if the hash is not as expected

local change = cjson.decode(ARGV[2])
for field, value in pairs(change.expect) do
  if redis.call('HGET', KEYS[1], field) ~= value then return nil end
end
for field, value in pairs(change.set) do redis.call('HSET', KEYS[1], field, value) end
for field in pairs(change.remove) do redis.call('HDEL', KEYS[1], field) end
return { 1, add_notes(ARGV[1]) }
