-- reclaim: the answer of a claim was lost: what run holds under its nonce goes back to due, nothing burned.
-- KEYS   as in prelude.lua, with the due of the claim.
-- ARGV   fence (the nonce), least lease deadline ms to look at, offset, most ids to look at, ms: how much later what it took may have been due. So
--        much later is due again what had an attempt before, whose time is not known any more: none is early.
-- Answer { ids looked at, ids given back }: call again with the offset moved by the difference until fewer than asked for are looked at.
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
