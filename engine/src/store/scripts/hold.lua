-- hold: the broker confirmed, now the consumer has until the TTR to say `finish`; the lease runs on from now.
-- KEYS   as in prelude.lua, no due.
-- ARGV   three a job: id, fence, ttr ms.
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs. First write HDEL, so that a full Redis does not refuse. No ZREM before the ZADD of the same id: a cluster's slot that leaves
--        refuses a key that became empty, and the job would be in none.
local ids, states = leased(1, 3)
local held, leases, written, answer = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local state = states[i]
  answer[i] = state and 'done' or 'lease_lost'
  if state and state.flags ~= HELD then
    state.flags, state.crashes = HELD, 0
    push(held, id)
    push(leases, int(after(tonumber(ARGV[3 * i]))), id)
    push(written, id, write_state(state))
  end
end
if #held > 0 then call('HDEL', ACTS, '-') end
many('ZADD', RUN, leases)
many('HSET', STATE, written)
return answer
