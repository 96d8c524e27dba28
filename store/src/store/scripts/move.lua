-- move: moves jobs to another broker. Waiting jobs keep their due time, dead jobs stay dead.
-- KEYS   as in prelude.lua, with the due of the old broker, then that of the new one.
-- ARGV   two per job: id, its record for the new broker, of the same generation.
-- Answer per job: moved (also if moved before) | reserved (an attempt is in flight, or the job is held:
--        nothing changed) | changed (completed or replaced meanwhile: nothing changed).
-- Work   <= 128 jobs or 1 MiB a call. First write HDEL, so that a full Redis accepts the call.
local from_key, to_key = KEYS[FIRST_DUE], KEYS[FIRST_DUE + 1]
local ids, answer = {}, {}
for i = 1, #ARGV / 2 do ids[i] = ARGV[2 * i - 1] end
local records = many('HMGET', JOBS, ids) or {}
local leave, enter, written = {}, {}, {}
for i, id in ipairs(ids) do
  local was, record = records[i], ARGV[2 * i]
  if not (was and is_known(was) and generation_of(was) == generation_of(record)) then
    answer[i] = 'changed'
  elseif set_of(was) == set_of(record) then
    answer[i] = 'moved'
  else
    local due = call('ZSCORE', from_key, id)
    if due or call('ZSCORE', DEAD, id) then
      answer[i] = 'moved'
      push(written, id, record)
      if due then
        push(leave, id)
        push(enter, due, id)
      end
    else
      answer[i] = 'reserved'
    end
  end
end
if #written > 0 then call('HDEL', APPLIED, '-') end
many('ZREM', from_key, leave)
many('ZADD', to_key, enter)
many('HSET', JOBS, written)
return answer
