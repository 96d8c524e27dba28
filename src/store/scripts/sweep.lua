-- sweep: what has an end: the dead past their retention, the turns of gone and acts; and the memory of the last change of master.
-- KEYS   as in prelude.lua, no due.
-- ARGV   run_id of the master ('' unknown), dead retention ms, dedupe window ms, turn of acts ms, most dead to remove.
-- Answer { dead removed, tables turned, 1 where the master changed since the last sweep }.
-- Work   <= 128 dead; the tables are renamed or unlinked whole. First write ZREM or UNLINK.
local run_id, retention, window, acts_turn, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local over = call('ZRANGEBYSCORE', DEAD, '-inf', NOW - retention, 'LIMIT', 0, most)
many('ZREM', DEAD, over)
many('HDEL', JOBS, over)
many('HDEL', STATE, over)
local turned = 0
local function turn_if_older(newer, older, age)
  for _, key in ipairs({ newer, older }) do
    local begun = tonumber(call('HGET', key, '') or nil)
    if begun and begun <= NOW - age * (key == older and 2 or 1) then
      turned = turned + 1
      if key == newer then turn(newer, older) else call('UNLINK', older) end
    end
  end
end
turn_if_older(GONE, GONE_OLD, window)
turn_if_older(ACTS, ACTS_OLD, acts_turn)
local changed = 0
if run_id ~= '' then
  local known = call('HGET', STATE, '')
  local before = known and string.match(known, '^(.*):')
  if before ~= run_id then
    call('HDEL', ACTS, '-')
    call('HSET', STATE, '', run_id .. ':' .. int(before and NOW or 0))
    changed = before and 1 or 0
  end
end
return { #over, turned, changed }
