#!lua
-- Compares records, changes them, and adds entries to logs, in one step. All checks precede the first write, because
-- Redis does not roll back. storage.ts explains the parts. The first line makes Redis refuse the script when it is out
-- of memory; step.ts replaces that line for urgent changes.
--
-- KEYS     all names; the change refers to them by their places. KEYS[1] is the mark of this change: a change that was
--          applied or cancelled is not applied again.
-- ARGV[1]  JSON: { parts = list of { key, exists = true, false or missing,
--                    expect = list of { field, text, or false if it must not exist },
--                    set = fields and values, alternating; remove = fields;
--                    to = place of the name to move to, with `mark`, for `seconds`; missing for no move;
--                    fields = list of { moved field, place of the name that contains it };
--                    beside = places of names that the move also removes },
--                  index = { key, score, id } of a new key; missing for none,
--                  entries = list of { key, length = entries kept, as text; fields = names and values, alternating;
--                    look_back = how many entries are searched for a repetition, as text; missing to add in any case;
--                    within = how old the repeated entry may be, in milliseconds }
--                    or { key, text } for an outbox }
-- ARGV[2]  seconds that the mark is kept
-- ARGV[3]  '1' if the step was sent before and got no reply: the step is cancelled if it cannot be applied
-- ARGV[4]  Unix time in microseconds, by the clock of this Redis, from which the change is no longer applied
--
-- reply    { 1 applied, 0 not as required, -1 cancelled; list of { place of an entry from 0, why it could not be added } }

local call, pcall = redis.call, redis.pcall
local change = cjson.decode(ARGV[1])

local mark = call('GET', KEYS[1])
if mark then return { mark == 'made' and 1 or -1, {} } end

local time = call('TIME')
if time[1] * 1000000 + time[2] >= tonumber(ARGV[4]) then return { -1, {} } end

-- A value of another type, put there by hand, counts as a record without fields.
local function is_as_required(part)
  part.type = call('TYPE', KEYS[part.key]).ok
  if part.exists ~= nil and part.exists ~= (part.type ~= 'none') then return false end
  for _, expected in ipairs(part.expect) do
    local value = part.type == 'hash' and call('HGET', KEYS[part.key], expected[1])
    if value ~= expected[2] then return false end
  end
  return true
end

for _, part in ipairs(change.parts) do
  if not is_as_required(part) then
    if ARGV[3] == '1' then call('SET', KEYS[1], 'cancelled', 'EX', ARGV[2]) end
    return { 0, {} }
  end
  local is_hash = part.type == 'hash' or part.type == 'none'
  if not is_hash and #part.set > 0 and not part.to then return redis.error_reply('WRONGTYPE in ' .. KEYS[part.key]) end
end

-- The mark is necessary: a key without any of the fields would otherwise leave nothing behind, and a backup could
-- restore that key.
local function move(from, to, part)
  local kept = { part.mark, '1' }
  for _, moved in ipairs(part.fields) do
    local value = pcall('HGET', KEYS[moved[2]], moved[1])
    if type(value) == 'string' then
      kept[#kept + 1] = moved[1]
      kept[#kept + 1] = value
    end
  end
  call('DEL', from, to)
  for _, at in ipairs(part.beside) do call('DEL', KEYS[at]) end
  call('HSET', to, unpack(kept))
  call('EXPIRE', to, part.seconds)
end

-- A gateway reads a byte that is not UTF-8 in a field's name as U+FFFD. No gateway uses such names itself, so this
-- returns all names that look like the given one.
local function named(name, field)
  local found, shape = { field }, field:gsub('[\128-\255]+', '?')
  if not field:find('\239\191\189', 1, true) then return found end
  local hash = call('HGETALL', name)
  for at = 1, #hash, 2 do
    if hash[at]:gsub('[\128-\255]+', '?') == shape then found[#found + 1] = hash[at] end
  end
  return found
end

-- This write comes first, because it fails if somebody has put a value of another type there.
if change.index then
  local name = KEYS[change.index.key]
  local placed = pcall('ZADD', name, 'NX', change.index.score, change.index.id)
  if type(placed) == 'table' then return redis.error_reply((placed.err:gsub('^WRONGTYPE.*', 'WRONGTYPE in ' .. name))) end
end
for _, part in ipairs(change.parts) do
  local name = KEYS[part.key]
  if #part.set > 0 and not part.to then call('HSET', name, unpack(part.set)) end
  for _, field in ipairs(part.type == 'hash' and part.remove or {}) do call('HDEL', name, unpack(named(name, field))) end
  if part.to then move(name, KEYS[part.to], part) end
end
call('SET', KEYS[1], 'made', 'EX', ARGV[2])

local function value_of(fields, name)
  for at = 1, #fields, 2 do
    if fields[at] == name then return fields[at + 1] end
  end
  return nil
end

-- Unix time in milliseconds, as text.
local now = ('%.0f'):format(time[1] * 1000 + math.floor(time[2] / 1000))

-- A repetition may list no changes, because nothing was left to change.
local function is_same(before, fields)
  if #before - (value_of(before, 'at') and 2 or 0) ~= #fields then return false end
  for at = 1, #fields do
    local is_empty = fields[at - 1] == 'changes' and fields[at] == '[]'
    if before[at] ~= fields[at] and not is_empty then return false end
  end
  return true
end

-- A repetition equals the newest entry about its target, and follows soon after it. In between, the clock may have been
-- set back a little.
local function is_repetition(stream, entry)
  local target = value_of(entry.fields, 'target')
  for _, other in ipairs(pcall('XREVRANGE', stream, '+', '-', 'COUNT', entry.look_back)) do
    if value_of(other[2], 'target') == target then
      local made_at = tonumber(value_of(other[2], 'at')) or other[1]:match('%d+')
      return math.abs(now - made_at) <= entry.within and is_same(other[2], entry.fields)
    end
  end
  return false
end

-- The id has the time. After the clock was set back, ids continue from the newest one, so the entry gets its time as a
-- field.
local function add(stream, entry)
  if entry.text then return pcall('RPUSH', stream, entry.text) end
  if entry.look_back and is_repetition(stream, entry) then return nil end
  local fields = entry.fields
  local added = pcall('XADD', stream, 'MAXLEN', '=', entry.length, now .. '-*', unpack(fields))
  if type(added) == 'string' then return added end
  fields[#fields + 1] = 'at'
  fields[#fields + 1] = now
  return pcall('XADD', stream, 'MAXLEN', '=', entry.length, '*', unpack(fields))
end

-- An entry is lost if somebody has put a value of another type in place of its stream. The change itself still
-- succeeds.
local lost = {}
for at, entry in ipairs(change.entries) do
  local added = add(KEYS[entry.key], entry)
  if type(added) == 'table' and added.err then lost[#lost + 1] = { at - 1, added.err } end
end
return { 1, lost }
