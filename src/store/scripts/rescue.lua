-- rescue: leases past their time are taken over under a new fence, with a new lease. What was held for its consumer stays marked as held;
--         of any other job the owner crashed: one more crash in a row (a second rescue of the same lease counts none).
-- KEYS   as in prelude.lua, no due.
-- ARGV   fence (8 random bytes), lease ms, most jobs, most bytes of records.
-- Answer { now us, next lease deadline ms ('' none), 1 where more is past its time, jobs of an unknown version left in place, ids without a
--          record that were taken out, then id, state, record, '' of each job }.
-- Work   <= 128 jobs or 1 MiB; looks at <= 1024 ids. First write ZREM.
local fence, lease, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ids, taken, orphans = {}, {}, {}
local bytes, unknown, more, offset = 0, 0, 0, 0
while #ids < most and offset < 1024 and more == 0 do
  local page = call('ZRANGEBYSCORE', RUN, '-inf', NOW, 'LIMIT', offset, most)
  local states = many('HMGET', STATE, page) or {}
  for i, id in ipairs(page) do
    local length = call('HSTRLEN', JOBS, id)
    if length == 0 then
      push(orphans, id)
    elseif #ids > 0 and (bytes + length > most_bytes or #ids >= most) then
      more = 1
      break
    else
      local record = call('HGET', JOBS, id)
      if is_known(record) and is_readable(states[i]) then
        -- A lease without a state is damage: the job is taken as never attempted.
        local state = states[i] and read_state(states[i]) or new_state(record, NOW)
        if state.flags == 0 then
          state.crashes = math.min(state.crashes + 1, 255)
          state.flags = TAKEN_OVER
        end
        state.fence = fence
        bytes = bytes + length
        push(ids, id)
        taken[#ids] = { state = write_state(state), record = record }
      else
        unknown = unknown + 1
      end
    end
  end
  if #page < most then break end
  if #ids >= most then more = 1 end
  offset = offset + most
end
many('ZREM', RUN, orphans)
many('HDEL', STATE, orphans)
many('ZREM', RUN, ids)
local leases, states = {}, {}
for i, id in ipairs(ids) do
  push(leases, int(NOW + lease), id)
  push(states, id, taken[i].state)
end
many('ZADD', RUN, leases)
many('HSET', STATE, states)
local next_deadline = call('ZRANGEBYSCORE', RUN, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local answer = { NOW_US, next_deadline[2] and int(next_deadline[2]) or '', more, unknown, #orphans }
for i, id in ipairs(ids) do
  push(answer, id, taken[i].state, taken[i].record)
  push(answer, '')
end
return answer
