#!lua
-- Changes fields of one hash, if it still is as it was read: in one step, so that two people cannot overwrite each other,
-- and a key that was revoked meanwhile does not come back.
--
-- KEYS[1]  the hash
-- ARGV[1]  JSON: { expect: { field: text, or false where there must be none }, set: { field: text }, remove: { field: true } }
--
-- reply    the hash as it was before, fields and values in turn; nil when it is not as expected

local change = cjson.decode(ARGV[1])
for field, value in pairs(change.expect) do
  if redis.call('HGET', KEYS[1], field) ~= value then return nil end
end
local before = redis.call('HGETALL', KEYS[1])
for field, value in pairs(change.set) do redis.call('HSET', KEYS[1], field, value) end
for field in pairs(change.remove) do redis.call('HDEL', KEYS[1], field) end
return before
