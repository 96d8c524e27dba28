-- claim: moves jobs of one broker that are due, or almost due, from due into one new claim. Writes no
--        state.
-- KEYS   as in prelude.lua, with the one due that is read.
-- ARGV   nonce (8 random bytes), lease ms, limit of jobs, limit of bytes of records (at least one job is
--        claimed), ms ahead: jobs due within this time are claimed too, and the caller publishes them at
--        their due time; then the unreadable ids at the head as in the last answer: count, last id, its
--        score (0 and two empty ones: none).
-- Answer { now us, next due ms after those ahead ('' none), 1 if more are claimable or were not checked,
--        count of jobs of an unknown version left in place at the head, the last of them, its score
--        ('' none), count of removed ids without a record, created of the claim, then per position of the
--        claim: id ('' the job has left the claim), state ('' none), record, due ms }.
-- Order  The oldest first. If jobs that are overdue by more than RECENT fill the limit of jobs, up to half
--        of the claim, in jobs and in bytes, goes to jobs that fell due since then, and these come first:
--        after an outage, newly due jobs do not wait behind overdue ones.
-- Work   <= 128 jobs or 1 MiB a call; checks <= 1024 ids after the known unreadable ones. First write
--        HDEL: a full Redis still drains. The claim is written before the jobs leave due: a failure
--        between the two loses nothing.
local nonce, span, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local due_key, until_ms = KEYS[FIRST_DUE], NOW + tonumber(ARGV[5])
local before = CLAIM_COUNT > 0 and call('HGET', SETTLED, nonce)
if before then return answer_again(nonce, before) end
-- A job is recent until this many ms after its due time.
local RECENT = 1000
-- Records are fetched in slices of at most this many, which bounds the records that are fetched in vain.
local SLICE = 8
-- Field '' of state is no job's.
local has_states = STATE_COUNT > 1 or STATE_COUNT == 1 and call('HEXISTS', STATE, '') == 0
-- taken: the recent ids that were claimed or removed before the oldest ones; a later page may reach them
-- again.
local ids, text, orphans, taken = {}, {}, {}, {}
local answer = { NOW_US, '', 0, 0, '', '', 0, CREATED }
local bytes, more, looked, count, recent = 0, 0, 0, 0, 0
local last_unknown, last_score = ARGV[7], ARGV[8]
local skipped, floor_score, offset = behind_unread(due_key, tonumber(ARGV[6]), last_unknown, last_score)
local unknown = skipped

-- Reads pages, because jobs left in place must not hide the jobs after them.
while count < most and looked - recent < 1024 and more == 0 do
  local page = call('ZRANGEBYSCORE', due_key, floor_score, until_ms, 'WITHSCORES', 'LIMIT', offset + looked - recent, most)
  if looked == 0 and #page == 2 * most and tonumber(page[#page]) < NOW - RECENT then
    local head = call('ZRANGEBYSCORE', due_key, NOW - RECENT, until_ms, 'WITHSCORES', 'LIMIT', 0, floor(most / 2))
    recent = #head / 2
    for i = 1, #page - #head do head[2 * recent + i] = page[i] end
    page = head
  end
  local is_cut, at, slice = false, 1, 1
  while at <= #page and not is_cut do
    if slice == 0 then
      -- The next record may be too large: its size is checked first, so that it is not fetched in vain.
      if looked < recent and bytes + call('HSTRLEN', JOBS, page[at]) > most_bytes / 2 then
        at, looked = 2 * recent + 1, recent
      end
      is_cut, slice = bytes + call('HSTRLEN', JOBS, page[at]) > most_bytes, 1
      if is_cut then break end
    end
    local page_ids = {}
    for i = at, math.min(#page, at + 2 * slice - 1), 2 do page_ids[(i - at) / 2 + 1] = page[i] end
    local page_records = call('HMGET', JOBS, unpack(page_ids))
    local page_states = has_states and call('HMGET', STATE, unpack(page_ids)) or {}
    -- These characters would break the text of the claim. One look at all ids is cheaper.
    local joined = table.concat(page_ids)
    local is_plain = not (string.find(joined, '\0', 1, true) or string.find(joined, '\1', 1, true))
    local longest = 1
    for i = 1, #page_ids do
      local id, record, state = page_ids[i], page_records[i], page_states[i]
      local size = record and #record or 0
      if size > longest then longest = size end
      if taken[id] then
        -- The job was passed already.
      elseif size == 0 then
        push(orphans, id)
        if looked < recent then taken[id] = true end
      elseif looked < recent and bytes + size > most_bytes / 2 then
        -- The other half is for the oldest.
        at, looked = 2 * recent + 1, recent
        break
      elseif count > 0 and (bytes + size > most_bytes or count >= most) then
        is_cut = true
        break
      elseif is_known(record) and is_readable(state) and (is_plain or not string.find(id, '[%z\1]')) then
        count, bytes = count + 1, bytes + size
        ids[count] = id
        local part = 4 * count
        text[part - 3], text[part - 2], text[part - 1], text[part] = '\0', id, '\1', page[at + 1]
        if looked < recent then taken[id] = true end
        local next = 4 * count + 5
        answer[next], answer[next + 1], answer[next + 2], answer[next + 3] = id, state or '', record, page[at + 1]
      elseif looked >= recent then
        unknown, last_unknown, last_score = unknown + 1, id, page[at + 1]
      end
      at, looked = at + 2, looked + 1
    end
    slice = math.min(2 * slice, SLICE, floor(math.max(0, most_bytes - bytes) / longest))
    -- A single job may exceed the limit of bytes.
    if count == 0 and slice == 0 then slice = 1 end
  end
  if count >= most or is_cut then more = 1
  elseif #page < 2 * most then break
  elseif looked - recent >= 1024 then more = 1 end
end
if unknown == 0 then last_unknown, last_score = '', '' end
local next_due = call('ZRANGEBYSCORE', due_key, '(' .. int(until_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
answer[2], answer[3], answer[4] = next_due[2] and int(next_due[2]) or '', more, unknown
answer[5], answer[6], answer[7] = last_unknown, last_score, #orphans

many('HDEL', STATE, orphans)
if count > 0 then
  call('HDEL', APPLIED, '-')
  write_claim(nonce, NOW + span, count, text)
end
-- If no id was skipped, the oldest claimed ones are adjacent and can be removed by rank.
if count > 0 and looked == count then
  recent = math.min(recent, count)
  if recent > 0 then call('ZREM', due_key, unpack(ids, 1, recent)) end
  if count > recent then call('ZREMRANGEBYRANK', due_key, skipped, skipped + count - recent - 1) end
else
  many('ZREM', due_key, ids)
  many('ZREM', due_key, orphans)
end
return answer
