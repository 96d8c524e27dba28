-- rescue: takes over expired leases with a new fence and a new lease. A held job stays marked as held.
--        For any other job the owner crashed, which counts as one more crash in a row (a second rescue
--        of the same lease does not count).
-- KEYS   as in prelude.lua, no due.
-- ARGV   fence (8 random bytes), lease ms, limit of jobs, limit of bytes of records; then the unreadable
--        ids at the head as in claim.lua.
-- Answer { now us, next lease deadline ms ('' none), 1 if more leases have expired or were not checked,
--        count of jobs of an unknown version left in place at the head, the last of them, its score
--        ('' none), count of removed ids without a record, then id, state, record, '' per job }.
-- Work   <= 128 jobs or 1 MiB; checks <= 1024 ids after the known unreadable ones. First write HDEL; as
--        in hold.lua.
local fence, lease, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ids, taken, orphans = {}, {}, {}
local bytes, more, looked = 0, 0, 0
local last_unknown, last_score = ARGV[6], ARGV[7]
local unknown, floor, offset = behind_unread(RUN, tonumber(ARGV[5]), last_unknown, last_score)
while #ids < most and looked < 1024 and more == 0 do
  local page = call('ZRANGEBYSCORE', RUN, floor, NOW, 'LIMIT', offset + looked, most)
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
        -- A lease without a state is damage: the job counts as never attempted.
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
        unknown, last_unknown = unknown + 1, id
      end
    end
  end
  if #page < most then break end
  looked = looked + most
  if #ids >= most or looked >= 1024 then more = 1 end
end
if unknown == 0 then last_unknown, last_score = '', '' else last_score = call('ZSCORE', RUN, last_unknown) end
many('ZREM', RUN, orphans)
many('HDEL', STATE, orphans)
if #ids > 0 then call('HDEL', ACTS, '-') end
local leases, states = {}, {}
for i, id in ipairs(ids) do
  push(leases, int(NOW + lease), id)
  push(states, id, taken[i].state)
end
many('ZADD', RUN, leases)
many('HSET', STATE, states)
local next_deadline = call('ZRANGEBYSCORE', RUN, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local answer = { NOW_US, next_deadline[2] and int(next_deadline[2]) or '', more, unknown, last_unknown, last_score, #orphans }
for i, id in ipairs(ids) do
  push(answer, id, taken[i].state, taken[i].record)
  push(answer, '')
end
return answer
