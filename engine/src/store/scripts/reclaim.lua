-- reclaim: the answer of a claim was lost: moves its jobs back from run to due, without counting an
--        attempt.
-- KEYS   as in prelude.lua, with the due of the claim.
-- ARGV   fence (the nonce), least lease deadline ms to check, offset, limit of ids to check, ms ahead of
--        the claim: attempted jobs are due again after this time, because their due time is lost and
--        they must not be early.
-- Answer { checked ids, moved ids }: advance the offset by the difference and call again, until fewer ids
--        than the limit are checked.
-- Work   <= 512 ids a call. First write ZREM.
local ids = call('ZRANGEBYSCORE', RUN, ARGV[2], '+inf', 'LIMIT', ARGV[3], ARGV[4])
local states = many('HMGET', STATE, ids) or {}
local back, dues, written = {}, {}, {}
for i, id in ipairs(ids) do
  if states[i] and fence_of(states[i]) == ARGV[1] and is_readable(states[i]) then
    local state = read_state(states[i])
    if state.flags == 0 then
      if state.reason == 0 then state.attempt = math.max(state.attempt - 1, 0) end
      state.fence = NO_FENCE
      push(back, id)
      push(dues, int(again_at(state, state.attempt == 0 and NOW or NOW + tonumber(ARGV[5]))), id)
      push(written, id, write_state(state))
    end
  end
end
many('ZREM', RUN, back)
many('ZADD', KEYS[9], dues)
many('HSET', STATE, written)
return { #ids, #back }
