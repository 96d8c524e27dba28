-- retry: the attempt failed: run > due at now + wait, step + 1; with a reason, due now, on its way to the
--        dead letters.
-- KEYS   as in prelude.lua, with the due of the jobs' broker.
-- ARGV   six per job: id, fence, wait ms, undo (1: nothing was published: the attempt is not counted),
--        reason (0: retry; else the code of the reason of death, store/record.rs), last error.
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs. First write ZREM.
local ids, states = leased(1, 6)
local back, dues, written, answer = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local state, at = states[i], 6 * (i - 1)
  answer[i] = state and 'done' or 'lease_lost'
  if state then
    -- A dying job keeps its reason.
    local reason = state.reason ~= 0 and state.reason or tonumber(ARGV[at + 5])
    if ARGV[at + 4] == '1' and state.reason == 0 then state.attempt = math.max(state.attempt - 1, 0) end
    if reason == 0 then state.step = state.step + 1 end
    state.fence, state.flags, state.crashes, state.reason, state.error = NO_FENCE, 0, 0, reason, ARGV[at + 6]
    push(back, id)
    push(dues, int(after(tonumber(ARGV[at + 3]))), id)
    push(written, id, write_state(state))
  end
end
many('ZREM', RUN, back)
many('ZADD', KEYS[9], dues)
many('HSET', STATE, written)
return answer
