-- fsck_memories: checks completed, completed_old, applied and applied_old: their times, and the entries that the caller
--        could not decode.
-- KEYS   as in prelude.lua, no due.
-- ARGV   repair (1: repair), dedupe window ms, turn of applied ms, then three per entry: index of its table
--        in KEYS, field, value.
-- Answer per finding: index of the table in KEYS, field ('' the table itself), problem, 1 if repaired.
-- Work   <= 128 entries; whole tables are unlinked. First write HDEL or UNLINK, except for a missing
--        time.
local repair, window, applied_turn = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3])
-- Sweep runs every half minute.
local GRACE = 600000
local answer = {}
local function found(at, field, problem, is_repaired)
  push(answer, at, field, problem)
  push(answer, is_repaired and 1 or 0)
end

for i = 4, #ARGV, 3 do
  local at, field, value = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  if call('HGET', KEYS[at], field) == value then
    if repair then call('HDEL', KEYS[at], field) end
    found(at, field, 'bad_memory', repair)
  end
end

-- The time of the older table is its end, that of the newer one its start. An outdated newer table
-- becomes the older one, because its last entries may be young.
local function judge_time(at, age)
  local key = KEYS[at]
  if call('EXISTS', key) == 0 then return end
  local time = tonumber(call('HGET', key, '') or nil)
  if not time or time > NOW + GRACE then
    if repair then call('HSET', key, '', wide(NOW)) end
    found(at, '', 'memory_without_time', repair)
  elseif time < NOW - age - GRACE then
    if repair and key == COMPLETED then rotate(COMPLETED, COMPLETED_OLD)
    elseif repair and key == APPLIED then rotate(APPLIED, APPLIED_OLD)
    elseif repair then call('UNLINK', key) end
    found(at, '', 'memory_past_time', repair)
  end
end
-- The older tables first, because a turn replaces them.
judge_time(5, window)
judge_time(4, window)
judge_time(7, applied_turn)
judge_time(6, applied_turn)
return answer
