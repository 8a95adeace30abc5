#!lua
-- Adds a record to the history, unless its newest record, or one of the last five seconds, leads to this version: every gateway
-- reports a change that it sees, and one record is enough.
--
-- KEYS[1]  the stream; behind it the streams of the notes
-- ARGV[1]  notes (add-notes.lua)
-- ARGV[2]  the version that results from the change
-- ARGV[3]  the number of records to keep
-- ARGV[4]  and following: fields and values, alternating
--
-- reply    { 1, the notes that are lost }, or nil if it is recorded already

local function leads_there(record)
  for i = 1, #record[2], 2 do
    if record[2][i] == 'version' and record[2][i + 1] == ARGV[2] then return true end
  end
end

for _, record in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)) do
  if leads_there(record) then return nil end
end
-- A gateway that reports late must not report again what others have, although another change followed.
local recently = (redis.call('TIME')[1] - 5) .. '000'
for _, record in ipairs(redis.call('XREVRANGE', KEYS[1], '+', recently, 'COUNT', 50)) do
  if leads_there(record) then return nil end
end
redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[3], '*', unpack(ARGV, 4))
return { 1, add_notes(ARGV[1]) }
