-- end: removes jobs of queues whose own end has come, in any state, without an outcome.
-- KEYS   as in prelude.lua, with due and dead of each queue of the jobs.
-- ARGV   three per job: id, set of its queue, generation of the record that the caller read. The ids of
--        one call are distinct.
-- Answer per job: ended | not_found (nothing changed: there is no such job, or another one by now).
-- Work   <= 128 jobs or 1 MiB; a command for each, and two for each queue. First write HDEL.
local ids, answer, ended, applied, by_set, held, unheld = {}, {}, {}, {}, {}, {}, {}
for i = 1, #ARGV / 3 do ids[i] = ARGV[3 * i - 2] end
local records, states = many('HMGET', JOBS, ids) or {}, many('HMGET', STATE, ids) or {}
for i, id in ipairs(ids) do
  local record, set = records[i], ARGV[3 * i - 1]
  if record and is_known(record) and generation_of(record) == ARGV[3 * i] and set_of(record) == set and DEAD_OF[set] then
    by_set[set] = by_set[set] or {}
    push(by_set[set], id)
    push(ended, id)
    if call('ZSCORE', HELD, id) then
      push(held, id)
      unheld[set] = (unheld[set] or 0) + 1
    end
    -- A repeat of the call that scheduled the job must not bring it back.
    push_schedule(applied, record, states[i] and is_readable(states[i]) and read_state(states[i]).due or nil)
    answer[i] = 'ended'
  else
    answer[i] = 'not_found'
  end
end
many('HDEL', JOBS, ended)
many('HDEL', STATE, ended)
many('ZREM', HELD, held)
for set, jobs in pairs(by_set) do
  local missing = #jobs - (unheld[set] or 0) - call('ZREM', DUE[set], unpack(jobs)) - call('ZREM', DEAD_OF[set], unpack(jobs))
  -- The other jobs are in the claim of a rescue.
  for _, id in ipairs(jobs) do
    if missing > 0 then
      local claimed = find_claimed(id)
      take_all_out(claimed)
      if #claimed > 0 then missing = missing - 1 end
    end
  end
end
if ALL_CLAIMS then close_claims(ALL_CLAIMS) end
remember_applied(applied)
for set, number in pairs(unheld) do count_held(set, -number) end
if #applied > 0 then rotate_applied() end
return answer
