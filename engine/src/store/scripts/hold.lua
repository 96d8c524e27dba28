-- hold: the broker confirmed: the job stays in run until the consumer finishes it, at most for the TTR
--        from now.
-- KEYS   as in prelude.lua, no due.
-- ARGV   three per job: id, fence, ttr ms.
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs. First write HDEL, so that a full Redis accepts the call. No ZREM before the ZADD
--        of an id: while a slot migrates, its master refuses a key that became empty, and the job would
--        be in no set.
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
