#!lua
-- Adds notes, with nothing else to do in the same step.
--
-- KEYS     their streams
-- ARGV[1]  notes (add-notes.lua)
--
-- reply    { 1, the notes that are lost }

return { 1, add_notes(ARGV[1]) }
