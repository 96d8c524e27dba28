-- bury: moves dead jobs from run to dead, where they stay for their retention.
-- KEYS   as in prelude.lua, no due.
-- ARGV   four per job: id, fence, code of the reason (store/record.rs), last error.
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs. First write ZREM.
local ids, states = leased(1, 4)
local gone_to_rest, deaths, written, answer = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local state, at = states[i], 4 * (i - 1)
  answer[i] = state and 'done' or 'lease_lost'
  if state then
    state.fence, state.flags, state.crashes, state.reason, state.error = NO_FENCE, 0, 0, tonumber(ARGV[at + 3]), ARGV[at + 4]
    push(gone_to_rest, id)
    push(deaths, int(NOW), id)
    push(written, id, write_state(state))
  end
end
many('ZREM', RUN, gone_to_rest)
many('ZADD', DEAD, deaths)
many('HSET', STATE, written)
return answer
