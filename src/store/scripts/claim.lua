-- claim: takes due jobs of one broker under a lease: due > run, attempt + 1, a new fence.
-- KEYS   as in prelude.lua, with the one due that is read.
-- ARGV   fence (8 random bytes: the nonce of this claim), lease ms, most jobs, most bytes of records (at least one job is taken).
-- Answer { now us, next due ms that is later than now ('' none), 1 where more is due already, jobs of an unknown version that were left in place,
--          ids without a record that were taken out, then id, state, record of each job }.
-- Work   <= 128 jobs or 1 MiB a call; looks at <= 1024 ids. First write ZREM: a full Redis still drains.
local fence, lease, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local due_key = KEYS[9]
local ids, taken, orphans = {}, {}, {}
local bytes, unknown, more, offset = 0, 0, 0, 0

-- Pages, because what is left in place must not hide what stands behind it.
while #ids < most and offset < 1024 and more == 0 do
  local page = call('ZRANGEBYSCORE', due_key, '-inf', NOW, 'WITHSCORES', 'LIMIT', offset, most)
  local found = #page / 2
  local page_ids = {}
  for i = 1, found do page_ids[i] = page[2 * i - 1] end
  local states = many('HMGET', STATE, page_ids) or {}
  for i = 1, found do
    local id = page_ids[i]
    local length = call('HSTRLEN', JOBS, id)
    if length == 0 then
      push(orphans, id)
    elseif #ids > 0 and (bytes + length > most_bytes or #ids >= most) then
      more = 1
      break
    else
      local record = call('HGET', JOBS, id)
      if is_known(record) and is_readable(states[i]) then
        local state = states[i] and read_state(states[i]) or new_state(record, tonumber(page[2 * i]))
        -- A job on its way to the dead letters makes no new attempt.
        if state.reason == 0 then state.attempt = state.attempt + 1 end
        state.fence, state.flags = fence, 0
        bytes = bytes + length
        push(ids, id)
        taken[#ids] = { state = write_state(state), record = record }
      else
        unknown = unknown + 1
      end
    end
  end
  if found < most then break end
  if #ids >= most then more = 1 end
  offset = offset + most
end

many('ZREM', due_key, orphans)
many('HDEL', STATE, orphans)
many('ZREM', due_key, ids)
local leases, states = {}, {}
for i, id in ipairs(ids) do
  push(leases, int(NOW + lease), id)
  push(states, id, taken[i].state)
end
many('ZADD', RUN, leases)
many('HSET', STATE, states)

local next_due = call('ZRANGEBYSCORE', due_key, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local answer = { NOW_US, next_due[2] and int(next_due[2]) or '', more, unknown, #orphans }
for i, id in ipairs(ids) do push(answer, id, taken[i].state, taken[i].record) end
return answer
