#!lua
-- Adds a record to the history, unless its newest record already leads to the same version of the table: every gateway
-- reports a change that it sees, and one of them is enough.
--
-- KEYS[1]  the stream
-- ARGV[1]  version that the change leads to
-- ARGV[2]  how many records are kept
-- ARGV[3]  the rest: fields and values in turn

local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
for i = 1, newest and #newest[2] or 0, 2 do
  if newest[2][i] == 'version' and newest[2][i + 1] == ARGV[1] then return 0 end
end
redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[2], '*', unpack(ARGV, 3))
return 1
