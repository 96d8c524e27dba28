-- sweep: removes dead jobs past their retention, turns completed and applied, and detects a change of master.
-- KEYS   as in prelude.lua; with due and dead of a queue: removes the dead jobs of that queue, no more.
-- ARGV   dead retention ms, dedupe window ms, turn of applied ms, limit of dead jobs to remove.
-- Answer { removed dead jobs, turned or removed tables, 1 if the master has changed or restarted }.
-- Work   <= 128 dead jobs; whole tables are renamed or unlinked. First write ZREM, HDEL or UNLINK.
local retention, window, applied_turn, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local dead_key = KEYS[FIRST_DUE + 1] or DEAD
local over = call('ZRANGEBYSCORE', dead_key, '-inf', NOW - retention, 'LIMIT', 0, most)
many('ZREM', dead_key, over)
many('HDEL', JOBS, over)
many('HDEL', STATE, over)
if dead_key ~= DEAD then return { #over, 0, 0 } end

local turned = 0
-- An entry lasts for at least one `age`: its time in the newer table, and one `age` in the older.
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
    rotate(newer, older)
    turned = turned + 1
  end
end
turn_by(window, COMPLETED, COMPLETED_OLD)
turn_by(applied_turn, APPLIED, APPLIED_OLD)

local _, changed = see_master(call('HLEN', JOBS) == 0)
return { #over, turned, changed }
