-- release: nothing was published, or the owner crashed: run > due, at now + pause, with the step of the
--        retry array kept. A job without an attempt is never due before its due time.
-- KEYS   as in prelude.lua, with the due of the jobs' broker.
-- ARGV   four per job: id, fence, pause ms, undo (1: nothing was published: the attempt is not counted,
--        and the count of crashes in a row restarts).
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs. First write ZREM.
local ids, states = leased(1, 4)
local back, dues, written, answer = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local state = states[i]
  answer[i] = state and 'done' or 'lease_lost'
  if state then
    if ARGV[4 * i] == '1' then
      if state.reason == 0 then state.attempt = math.max(state.attempt - 1, 0) end
      state.crashes = 0
    end
    state.fence, state.flags = NO_FENCE, 0
    push(back, id)
    push(dues, int(again_at(state, after(tonumber(ARGV[4 * i - 1])))), id)
    push(written, id, write_state(state))
  end
end
many('ZREM', RUN, back)
many('ZADD', KEYS[9], dues)
many('HSET', STATE, written)
return answer
