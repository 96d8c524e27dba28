-- end: removes jobs of queues whose own end has come, in any state, without an outcome. Or jobs that wait die,
--      or leave, because nobody takes them: a job of a queue is dead, and one of a broker is due for its dead letter.
-- KEYS   as in prelude.lua, with the sets of the jobs.
-- ARGV   five per job: id, set, generation of the record that the caller read, the state that the caller read
--        ('' none) or '*' (the job ends in any state), the state with the reason of death ('' the job leaves).
--        The ids of one call are distinct.
-- Answer per job: ended | not_found (nothing changed: there is no such job, or another one by now; or a job that
--        waited has another state, or waits no more).
-- Work   <= 128 jobs or 1 MiB; a command for each, and a few for each set. First write HDEL.
local WIDTH = 5
local ids, answer, ended, applied, by_set, held, unheld = {}, {}, {}, {}, {}, {}, {}
local written, dying, dead = {}, {}, {}
for i = 1, #ARGV / WIDTH do ids[i] = ARGV[WIDTH * (i - 1) + 1] end
local records, states = many('HMGET', JOBS, ids) or {}, many('HMGET', STATE, ids) or {}
for i, id in ipairs(ids) do
  local at = WIDTH * (i - 1)
  local record, set, read, death = records[i], ARGV[at + 2], ARGV[at + 4], ARGV[at + 5]
  local is_same = record and is_known(record) and generation_of(record) == ARGV[at + 3] and set_of(record) == set and DUE[set]
  if is_same and read ~= '*' then is_same = (states[i] or '') == read and call('ZSCORE', DUE[set], id) end
  if is_same and death ~= '' then
    push(written, id, death)
    local list = is_of_queue(record) and dead or dying
    list[set] = list[set] or {}
    push(list[set], int(NOW), id)
    answer[i] = 'ended'
  elseif is_same then
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
-- A full Redis accepts a death behind a write that frees memory.
if #written > 0 then call('HDEL', APPLIED, '-') end
many('HDEL', JOBS, ended)
many('HDEL', STATE, ended)
many('HSET', STATE, written)
many('ZREM', HELD, held)
for set, list in pairs(dying) do many('ZADD', DUE[set], list) end
for set, list in pairs(dead) do
  many('ZADD', dead_of(set), list)
  for i = 2, #list, 2 do call('ZREM', DUE[set], list[i]) end
end
for set, jobs in pairs(by_set) do
  local missing = #jobs - (unheld[set] or 0) - call('ZREM', DUE[set], unpack(jobs)) - call('ZREM', dead_of(set), unpack(jobs))
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
