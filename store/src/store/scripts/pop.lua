-- pop: hands due jobs of one queue to consumers: claims and holds them in one step, each until its
--      deadline. The first consumer gets the first jobs, up to his limits, then the next one.
-- KEYS   as in prelude.lua, with due and dead of the queue, then pops and pops_old.
-- ARGV   nonce (8 random bytes), deadline of the call, epoch us ('' unknown), limit of bytes of records
--        (at least one job is handed out), ms ahead: where no job is due, those of the first due time within
--        it are taken, and the caller hands them out at that time, then per consumer: lease ms ('' that of the record), the
--        longest lease ms, limit of jobs, limit of bytes of records (at least one job is handed out),
--        limit of bytes of that one ('' none).
-- Answer { now us, next due ms of the queue ('' none), 1 if more are due, 1 if the queue is paused, count
--        of unreadable jobs that were left in place, count of removed ids without a record, count of the
--        first consumers that have all that they may get (one of them without a job: the first job is
--        too large for its limit), then per job: id, state, record, deadline ms, number of its consumer
--        from 1 }. A repeat of the call answers the jobs that this pop still holds, and changes nothing.
-- Errors 'DWELL_LATE now us': the deadline of the call has passed. Nothing was written.
-- Work   <= 128 jobs or 1 MiB; looks at <= 1024 ids. First write HDEL: a full Redis still hands out.
local nonce, call_bytes = ARGV[1], tonumber(ARGV[3])
if is_late(tonumber(ARGV[2])) then return late() end
local due_key, pops, pops_old = KEYS[FIRST_DUE], KEYS[FIRST_DUE + 2], KEYS[FIRST_DUE + 3]
local set = string.match(due_key, '}:due:(.*)$')
local answer = { NOW_US, '', 0, 0, 0, 0, 0 }
local before = popped(pops, pops_old, nonce)
if before then
  local consumer = 1
  for id in string.gmatch(before, '%z([^%z]*)') do
    -- No id: the jobs of the next consumer follow.
    if id == '' then consumer = consumer + 1 end
    local state, deadline = has_popped(id, nonce), call('ZSCORE', HELD, id)
    local record = state and deadline and tonumber(deadline) > NOW and call('HGET', JOBS, id)
    if record then
      push(answer, id, state, record)
      push(answer, int(tonumber(deadline)), consumer)
    end
  end
  answer[3] = 1
  return answer
end
if call('HGET', QUEUES, '!' .. set) then
  answer[4] = 1
  return answer
end

local LOOKED_MAX, SLICE = 1024, 16
local ids, states, held, text, orphans = {}, {}, {}, {}, {}
-- The latest due time of the jobs.
local until_ms = NOW
if tonumber(ARGV[4]) > 0 then
  local first = call('ZRANGEBYSCORE', due_key, '-inf', int(NOW + tonumber(ARGV[4])), 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then until_ms = math.max(NOW, tonumber(first[2])) end
end
-- A state up to its due time: held, the first attempt at the first step.
local FRESH = struct.pack('>BBBI4I2', STATE_VERSION, FLAG_HELD, 0, 1, 0)
-- Deadlines by span: a number is slow to format.
local deadlines = {}
local bytes, looked, count, unknown, is_cut, is_over = 0, 0, 0, 0, false, false
-- The consumer whose turn it is, his limits, and what he has.
local consumers, consumer = (#ARGV - 4) / 5, 0
local lease, longest, own_most, own_limit, room, own, own_bytes
local function next_consumer()
  consumer = consumer + 1
  local at = 5 * consumer - 1
  lease, longest, own_most = tonumber(ARGV[at + 1] or nil), tonumber(ARGV[at + 2] or nil), tonumber(ARGV[at + 3] or nil)
  own_limit, room = tonumber(ARGV[at + 4] or nil), tonumber(ARGV[at + 5] or nil) or math.huge
  own, own_bytes = 0, 0
end
next_consumer()
-- Whether a consumer has room for a record of this size. Each one without it has had his turn.
local function has_room(size)
  while consumer <= consumers do
    local sum = own_bytes + size
    if own < own_most and sum <= room and (own == 0 or sum <= own_limit) then return true end
    next_consumer()
  end
  return false
end
local most = 0
for at = 7, #ARGV, 5 do most = most + tonumber(ARGV[at]) end
-- The consumer of the last id in the text.
local told = 1
local slice = math.min(4, most)
while count < most and looked < LOOKED_MAX and not is_cut and not is_over do
  -- Ids that were looked at and stay are still in the set.
  local page = call('ZRANGEBYSCORE', due_key, '-inf', int(until_ms), 'WITHSCORES', 'LIMIT', looked, math.min(slice, most - count))
  if #page == 0 then break end
  local page_ids = {}
  for i = 1, #page, 2 do push(page_ids, page[i]) end
  local records, page_states = call('HMGET', JOBS, unpack(page_ids)), call('HMGET', STATE, unpack(page_ids))
  local largest = 1
  for i, id in ipairs(page_ids) do
    local record, state, due = records[i], page_states[i], tonumber(page[2 * i])
    local size = record and #record or 0
    if size > largest then largest = size end
    if size == 0 then
      push(orphans, id)
    elseif not (is_known(record) and is_readable(state)) or id == '' or string.find(id, '%z') then
      unknown = unknown + 1
    elseif due > NOW and state and struct.unpack('>i8', state, 10) ~= due then
      -- It waits for its next attempt: its state does not say until when.
      is_over = true
      break
    elseif count > 0 and bytes + size > call_bytes or not has_room(size) then
      is_cut = true
      break
    else
      count, bytes, own, own_bytes = count + 1, bytes + size, own + 1, own_bytes + size
      local early = due > NOW and EARLY or 0
      if state then
        local _, flags, crashes, attempt = struct.unpack('>BBBI4', state)
        local marks = byte(state, 42)
        for _, mark in ipairs({ FAILED, RELEASED, EARLY }) do
          if has(marks, mark) then marks = marks - mark end
        end
        state = struct.pack('>BBBI4', STATE_VERSION, FLAG_HELD, 0, attempt + 1) .. sub(state, 8, 17) .. nonce .. sub(state, 26, 41) .. string.char(marks + early) .. sub(state, 43)
      else
        -- Generation and fingerprint stand beside each other in the record, too.
        state = FRESH .. struct.pack('>i8', due) .. nonce .. sub(record, 7, 22) .. string.char(marks_of(record) + early, 0)
      end
      local span = math.min(lease or struct.unpack('>I4', record, 3), longest)
      if not deadlines[span] then deadlines[span] = int(after(span)) end
      local deadline = early > 0 and int(due + span) or deadlines[span]
      ids[count] = id
      push(text, string.rep('\0', consumer - told), '\0', id)
      told = consumer
      push(states, id, state)
      push(held, deadline, id)
      push(answer, id, state, record)
      push(answer, deadline, consumer)
    end
    looked = looked + 1
  end
  slice = math.max(1, math.min(4 * slice, SLICE, floor((call_bytes - bytes) / largest)))
end
-- Before the writes: while a slot migrates, its master refuses a key that became empty.
local head = call('ZRANGEBYSCORE', due_key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', looked, 1)
answer[2], answer[5], answer[6] = head[2] and int(tonumber(head[2])) or '', unknown, #orphans
answer[3] = (is_cut or head[2] and tonumber(head[2]) <= NOW) and 1 or 0
answer[7] = consumer - 1
if count > 0 then
  -- A failed script is not rolled back. All other keys that this one writes were read, so they are of their
  -- own type. A finish of the jobs writes COMPLETED.
  call('ZCARD', HELD)
  call('HLEN', COMPLETED)
end
-- The first write checks its key, too.
if count > 0 or #orphans > 0 then call('HDEL', APPLIED, '-') end
many('HDEL', STATE, orphans)
if count > 0 then
  -- This write comes first, so that unpop finds the jobs that a half-failed call handed out.
  remember_pop(pops, pops_old, nonce, table.concat(text))
  many('HSET', STATE, states)
  many('ZADD', HELD, held)
  count_held(set, count)
end
many('ZREM', due_key, ids)
many('ZREM', due_key, orphans)
return answer
