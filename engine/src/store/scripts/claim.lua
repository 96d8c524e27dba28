-- claim: moves jobs of one broker that are due, or almost due, from due to run, with a lease, attempt
--        + 1 and a new fence.
-- KEYS   as in prelude.lua, with the one due that is read.
-- ARGV   fence (8 random bytes: the nonce of this claim), lease ms, limit of jobs, limit of bytes of
--        records (at least one job is claimed), ms ahead: jobs due within this time are claimed too,
--        and the caller publishes them at their due time; then the unreadable ids at the head as in
--        the last answer: count, last id, its score (0 and two empty ones: none).
-- Answer { now us, next due ms after those ahead ('' none), 1 if more are claimable or were not checked,
--        count of jobs of an unknown version left in place at the head, the last of them, its score
--        ('' none), count of removed ids without a record, then id, state, record, due ms per job }.
-- Work   <= 128 jobs or 1 MiB a call; checks <= 1024 ids after the known unreadable ones. First write
--        ZREM or ZREMRANGEBYRANK: a full Redis still drains.
local fence, lease, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local due_key, until_ms = KEYS[9], NOW + tonumber(ARGV[5])
-- Not a job's id, because ids have no control characters. Its use is below.
local LONG = string.rep('\0', 65)
-- Records are fetched in slices of at most this many, which bounds those that are fetched in vain.
local SLICE = 8
local ids, records, states, dues, orphans = {}, {}, {}, {}, {}
local leases, written = {}, {}
local deadline = int(NOW + lease)
local bytes, more, looked, count = 0, 0, 0, 0
local last_unknown, last_score = ARGV[7], ARGV[8]
local skipped, floor, offset = behind_unread(due_key, tonumber(ARGV[6]), last_unknown, last_score)
local unknown = skipped

-- Reads pages, because jobs left in place must not hide the jobs after them.
while count < most and looked < 1024 and more == 0 do
  local page = call('ZRANGEBYSCORE', due_key, floor, until_ms, 'WITHSCORES', 'LIMIT', offset + looked, most)
  local is_cut, at, slice = false, 1, 1
  while at <= #page and not is_cut do
    if slice == 0 then
      -- The next record may be too large: its size is checked first, so that it is not fetched in vain.
      is_cut, slice = bytes + call('HSTRLEN', JOBS, page[at]) > most_bytes, 1
      if is_cut then break end
    end
    local page_ids = {}
    for i = at, math.min(#page, at + 2 * slice - 1), 2 do page_ids[(i - at) / 2 + 1] = page[i] end
    local page_records, page_states = call('HMGET', JOBS, unpack(page_ids)), call('HMGET', STATE, unpack(page_ids))
    local longest = 1
    for i = 1, #page_ids do
      local id, record, known = page_ids[i], page_records[i], page_states[i]
      local size = record and #record or 0
      if size > longest then longest = size end
      if size == 0 then
        push(orphans, id)
      elseif count > 0 and (bytes + size > most_bytes or count >= most) then
        is_cut = true
        break
      elseif is_known(record) and is_readable(known) then
        count, bytes = count + 1, bytes + size
        if known then
          local state = read_state(known)
          -- A job on its way to the dead letters has no new attempt.
          if state.reason == 0 then state.attempt = state.attempt + 1 end
          state.fence, state.flags = fence, 0
          known = write_state(state)
        else
          known = first_state(record, page[at + 1], fence)
        end
        ids[count], records[count], states[count], dues[count] = id, record, known, page[at + 1]
        leases[2 * count - 1], leases[2 * count] = deadline, id
        written[2 * count - 1], written[2 * count] = id, known
      else
        unknown, last_unknown, last_score = unknown + 1, id, page[at + 1]
      end
      at, looked = at + 2, looked + 1
    end
    slice = math.min(2 * slice, SLICE, math.floor(math.max(0, most_bytes - bytes) / longest))
    -- A single job may exceed the limit of bytes.
    if count == 0 and slice == 0 then slice = 1 end
  end
  if count >= most or is_cut then more = 1
  elseif #page < 2 * most then break
  elseif looked >= 1024 then more = 1 end
end
if unknown == 0 then last_unknown, last_score = '', '' end

many('ZREM', due_key, orphans)
many('HDEL', STATE, orphans)
-- If no id was skipped, the claimed ones are adjacent and can be removed by rank.
if count > 0 and looked == count then call('ZREMRANGEBYRANK', due_key, skipped, skipped + count - 1) else many('ZREM', due_key, ids) end
-- Redis stores a small set as a listpack, which every access searches, unless a member is longer than
-- 64 bytes. A set that once had such a member stays a skiplist.
if count > 16 and call('EXISTS', RUN) == 0 then
  call('ZADD', RUN, 0, LONG, unpack(leases))
  call('ZREM', RUN, LONG)
else
  many('ZADD', RUN, leases)
end
many('HSET', STATE, written)

local next_due = call('ZRANGEBYSCORE', due_key, '(' .. int(until_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local answer = { NOW_US, next_due[2] and int(next_due[2]) or '', more, unknown, last_unknown, last_score, #orphans }
for i = 1, count do
  local at = 4 * i + 3
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = ids[i], states[i], records[i], dues[i]
end
return answer
