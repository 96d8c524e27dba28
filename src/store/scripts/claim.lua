-- claim: takes due jobs of one broker under a lease: due > run, attempt + 1, a new fence.
-- KEYS   as in prelude.lua, with the one due that is read.
-- ARGV   fence (8 random bytes: the nonce of this claim), lease ms, most jobs, most bytes of records (at least one job is taken).
-- Answer { now us, next due ms that is later than now ('' none), 1 where more is due already, jobs of an unknown version that were left in place,
--          ids without a record that were taken out, then id, state, record of each job }.
-- Work   <= 128 jobs or 1 MiB a call; looks at <= 1024 ids. First write ZREM: a full Redis still drains.
local fence, lease, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local due_key = KEYS[9]
local ids, records, states, orphans = {}, {}, {}, {}
local leases, written = {}, {}
local deadline = int(NOW + lease)
local bytes, unknown, more, looked = 0, 0, 0, 0

-- Pages, because what is left in place must not hide what stands behind it.
while #ids < most and looked < 1024 and more == 0 do
  local page = call('ZRANGEBYSCORE', due_key, '-inf', NOW, 'WITHSCORES', 'LIMIT', looked, most)
  local page_ids, page_dues = {}, {}
  local is_cut = false
  for i = 1, #page, 2 do
    local id = page[i]
    local length = call('HSTRLEN', JOBS, id)
    if length == 0 then
      push(orphans, id)
    elseif #ids + #page_ids > 0 and (bytes + length > most_bytes or #ids + #page_ids >= most) then
      is_cut = true
      break
    else
      bytes = bytes + length
      push(page_ids, id)
      push(page_dues, page[i + 1])
    end
    looked = looked + 1
  end
  local page_records = many('HMGET', JOBS, page_ids) or {}
  local page_states = many('HMGET', STATE, page_ids) or {}
  local left = 0
  for i = 1, #page_ids do
    local id, record, known = page_ids[i], page_records[i], page_states[i]
    if is_known(record) and is_readable(known) then
      local at = #ids + 1
      ids[at], records[at] = id, record
      if known then
        local state = read_state(known)
        -- A job on its way to the dead letters makes no new attempt.
        if state.reason == 0 then state.attempt = state.attempt + 1 end
        state.fence, state.flags = fence, 0
        states[at] = write_state(state)
      else
        states[at] = first_state(record, tonumber(page_dues[i]), fence)
      end
      leases[2 * at - 1], leases[2 * at] = deadline, id
      written[2 * at - 1], written[2 * at] = id, states[at]
    else
      left = left + 1
      bytes = bytes - #record
    end
  end
  unknown = unknown + left
  -- Where nothing was left in place, the bound is reached for good.
  if #ids >= most or is_cut and left == 0 then more = 1
  elseif #page < 2 * most and not is_cut then break end
end

many('ZREM', due_key, orphans)
many('HDEL', STATE, orphans)
many('ZREM', due_key, ids)
many('ZADD', RUN, leases)
many('HSET', STATE, written)

local next_due = call('ZRANGEBYSCORE', due_key, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local answer = { NOW_US, next_due[2] and int(next_due[2]) or '', more, unknown, #orphans }
for i = 1, #ids do
  local at = 3 * i + 2
  answer[at + 1], answer[at + 2], answer[at + 3] = ids[i], states[i], records[i]
end
return answer
