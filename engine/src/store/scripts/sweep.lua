-- sweep: what has an end: the dead past their retention, the turns of gone and acts; and whether the master is another one.
-- KEYS   as in prelude.lua, no due.
-- ARGV   dead retention ms, dedupe window ms, turn of acts ms, most dead to remove.
-- Answer { dead removed, tables turned or forgotten, 1 where the master is another one, or restarted, since it was last seen }.
-- Work   <= 128 dead; the tables are renamed or unlinked whole. First write ZREM, HDEL or UNLINK.
local retention, window, acts_turn, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local over = call('ZRANGEBYSCORE', DEAD, '-inf', NOW - retention, 'LIMIT', 0, most)
many('ZREM', DEAD, over)
many('HDEL', JOBS, over)
many('HDEL', STATE, over)

local turned = 0
-- An entry stands for one `age` at least: as long as it is in the newer table, and one more in the older.
local function turn_by(age, newer, older)
  local function is_old(key)
    local begun = tonumber(call('HGET', key, '') or nil)
    return begun and begun <= NOW - age
  end
  if is_old(older) then
    call('UNLINK', older)
    turned = turned + 1
  end
  if is_old(newer) then
    turn(newer, older)
    turned = turned + 1
  end
end
turn_by(window, GONE, GONE_OLD)
turn_by(acts_turn, ACTS, ACTS_OLD)

local _, changed = see_master(call('HLEN', JOBS) == 0)
return { #over, turned, changed }
