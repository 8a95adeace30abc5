-- Adds notes to streams in the step that makes what they tell. Stands in front of a script's text (trail.ts).
--
-- A note is { key = place of its stream in KEYS, length = entries kept, fields = flat list,
-- look_back = how many entries are searched for a repetition, as text; false to write in any case }.
-- A repetition equals the newest entry about its target, and is left out.

local function field_of(fields, name)
  for at = 1, #fields, 2 do
    if fields[at] == name then return fields[at + 1] end
  end
end

local function are_equal(a, b)
  if #a ~= #b then return false end
  for at = 1, #a do
    if a[at] ~= b[at] then return false end
  end
  return true
end

local function is_repetition(stream, note)
  local target = field_of(note.fields, 'target')
  for _, entry in ipairs(redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', note.look_back)) do
    if field_of(entry[2], 'target') == target then return are_equal(entry[2], note.fields) end
  end
  return false
end

-- Returns the notes that cannot be written, each as its place, from 0, and the reason: somebody has put another value
-- there. What they tell is done all the same.
local function add_notes(notes)
  local lost = {}
  for at, note in ipairs(cjson.decode(notes)) do
    local stream = KEYS[note.key]
    if not (note.look_back and is_repetition(stream, note)) then
      local added = redis.pcall('XADD', stream, 'MAXLEN', '=', note.length, '*', unpack(note.fields))
      if type(added) == 'table' and added.err then table.insert(lost, { at - 1, added.err }) end
    end
  end
  return lost
end
