-- schedule: stores a batch of jobs of this bucket.
-- KEYS   as in prelude.lua, with the sets of the jobs, and of the jobs that have their ids; then ends and schedules.
-- ARGV   none (changes nothing), or five per job: id, record, time ('=' epoch ms | '+' ms from now | '<'
--        epoch ms, space, ms from now: the earlier), policy (replace | keep | reject | debounce, space,
--        max wait ms | other: if the id
--        is or was used, then by another message, and the answer is duplicate), flags (sum of 1: look up the
--        fingerprint; 2: the queue is full, and a job with a new id is refused; 4: the job
--        expires), followed by '@' and the time of its expiry, epoch ms, if that is fixed, and by ' ' and the
--        queues of the caller, if those are not all: a job of others stays. The ids of one call are
--        distinct. Then the deadline of the call, epoch us, if the caller knows Redis's clock.
-- Answer { now us, number of jobs, then verdict, due ms ('' unknown) per job, then broker, due ms per due
--        that has a new earliest job }. Verdicts: added duplicate replaced kept conflict (whatever the policy:
--        a recurring schedule has the id), or the earlier verdict if this inbound message was applied
--        before. Or nothing changed: unreadable (the existing
--        job is damaged or of a later version), full (a new job of a full queue),
--        taken (the existing job or schedule is of others).
-- Errors 'DWELL_BROKER n set n set ...': KEYS lack all of these; n: the place of the job in the call, from
--        1. 'DWELL_LATE now us': the deadline has passed. Nothing was written.
-- Work   <= 128 jobs or 1 MiB a call; a constant number of commands, at most five per set, and three per
--        job whose id exists. First write ZADD or HSET: a full Redis refuses the call before any change.
--        A failed script is not rolled back: each key that the call writes is read before the first write, as
--        the check of its type.
--        Most calls have one job with a new id. Redis creates the functions of a script again at each call: those
--        that only other jobs need are in a block that such a call skips.
local WIDTH, EQUALS, PLUS, DEBOUNCE = 5, byte('='), byte('+'), byte('d')
local count = floor(#ARGV / WIDTH)
local deadline_us = tonumber(ARGV[count * WIDTH + 1])
if deadline_us and NOW_US > deadline_us then
-- PRELUDE
  return late()
end
-- An empty batch tests whether Redis accepts requests, of whatever kind. It writes, because the durability gate
-- waits for writes only.
if count == 0 then
-- PRELUDE
  for _, key in ipairs({ JOBS, STATE, COMPLETED, COMPLETED_OLD, APPLIED_OLD, CLAIMS, SETTLED, QUEUES, SCHEDULES }) do call('HLEN', key) end
  for _, key in ipairs({ DEAD, CLAIM_DEADLINES, HELD }) do call('ZCARD', key) end
  for i = FIRST_DUE, #KEYS - 2 do call('ZCARD', KEYS[i]) end
  touch()
  return { NOW_US, 0 }
end

-- All sets that KEYS lack are named at once: a call with 128 jobs of other queues is sent twice, not 128
-- times.
local unknown
-- The fields to look up in applied: the fingerprint of each job, followed by the generation of a job with
-- FLAG_CALL_ID. Where the last one stands.
local names, last = {}, 0
local ids, brokers = {}, {}
-- Whether the call does nothing but store jobs under new ids, at plain times; whether the bucket is empty, and knows no master.
local is_plain, is_new = true, false
for i = 1, count do
  local at = (i - 1) * WIDTH
  local record, flags = ARGV[at + 2], tonumber(ARGV[at + 5]) or tonumber(string.match(ARGV[at + 5], '^%d+'))
  ids[i] = ARGV[at + 1]
  -- As set_of.
  local broker = sub(record, 32, 31 + byte(record, 31))
  if byte(record, 1) == QUEUE_VERSION then broker = '=' .. broker end
  brokers[i] = broker
  if not DUE[broker] then
    unknown = unknown or {}
    unknown[#unknown + 1] = i
    unknown[#unknown + 1] = broker
  end
  last = last + 1
  names[last] = sub(record, 15, 22)
  if floor(byte(record, 2) / FLAG_CALL_ID) % 2 == 1 then
    last = last + 1
    names[last] = sub(record, 7, 14)
  end
  local sign = byte(ARGV[at + 3], 1)
  if floor(flags / 2) % 2 == 1 or byte(ARGV[at + 4], 1) == DEBOUNCE or sign ~= EQUALS and sign ~= PLUS then is_plain = false end
end
-- A later schema can shut this version out by another type of `state`.
if call('HEXISTS', STATE, '') == 0 and call('HLEN', JOBS) == 0 then is_plain, is_new = false, true end
-- recurring: the recurring schedules that have the ids.
local live, completed, completed_old, applied, applied_old, recurring
if last == 1 then
  -- Single values are cheaper than lists of one.
  local id, name = ids[1], names[1]
  live, completed, completed_old = call('HGET', JOBS, id), call('HGET', COMPLETED, id), call('HGET', COMPLETED_OLD, id)
  applied, applied_old = call('HGET', APPLIED, name), call('HGET', APPLIED_OLD, name)
  recurring = call('HGET', SCHEDULES, id)
  if live or completed or completed_old or applied or applied_old or recurring then is_plain = false end
  if not is_plain then
    live, completed, completed_old = { live }, { completed }, { completed_old }
    applied, applied_old, recurring = { applied }, { applied_old }, { recurring }
  end
else
  live, completed, completed_old = call('HMGET', JOBS, unpack(ids)), call('HMGET', COMPLETED, unpack(ids)), call('HMGET', COMPLETED_OLD, unpack(ids))
  applied, applied_old = call('HMGET', APPLIED, unpack(names)), call('HMGET', APPLIED_OLD, unpack(names))
  recurring = call('HMGET', SCHEDULES, unpack(ids))
  for i = 1, count do
    if live[i] or completed[i] or completed_old[i] or recurring[i] then is_plain = false end
  end
  for i = 1, last do
    if applied[i] or applied_old[i] then is_plain = false end
  end
end

local enter_due, records, added, ends = {}, {}, 0, nil
local answer = { NOW_US, count }
-- Of a call that is not plain: per job whether it is stored, the verdict, the due time, and, if it is stored,
-- the text of that time, and the record; what is written before due, and after due.
local judged, leave, close
if not is_plain then
-- PRELUDE
  -- All keys that were not read yet.
  call('ZCARD', DEAD)
  call('HLEN', CLAIMS)
  call('HLEN', SETTLED)
  call('ZCARD', CLAIM_DEADLINES)
  call('ZCARD', HELD)
  call('HLEN', QUEUES)
  for i = FIRST_DUE, #KEYS - 2 do call('ZCARD', KEYS[i]) end

  for i = 1, count do
    local was = live[i]
    local set = was and is_known(was) and names_owner(was) and set_of(was)
    if set and not DUE[set] then
      unknown = unknown or {}
      push(unknown, i, set)
    end
  end
  if unknown then return redis.error_reply('DWELL_BROKER ' .. table.concat(unknown, ' ')) end
  -- Where the fingerprint of each job stands in names.
  local places, at_name = {}, 1
  for i = 1, count do
    places[i] = at_name
    at_name = at_name + (has(byte(ARGV[(i - 1) * WIDTH + 2], 2), FLAG_CALL_ID) and 2 or 1)
  end
  -- Ignores damaged entries: one must not fail the call, and with it all other jobs.
  for _, entries in ipairs({ completed, completed_old }) do
    for i, entry in ipairs(entries) do
      if entry and #entry < COMPLETED_BYTES then entries[i] = false end
    end
  end

  -- A record's metadata, after its length (4) behind the owner, ends in the first request of a job that
  -- debounces (store/record/metadata.rs).
  local DEBOUNCED = '\169debounced\196\8'
  -- Where the 8 bytes begin; none: the job does not debounce.
  local function first_place(record)
    local at = 32 + byte(record, 31)
    if #record < at + 3 then return nil end
    local place = at - 4 + struct.unpack('>I4', record, at)
    if place + 7 > #record or sub(record, place - #DEBOUNCED, place - 1) ~= DEBOUNCED then return nil end
    return place
  end
  -- The time of the first request. None: the job was attempted or rescheduled, or does not debounce.
  local function first_of(record, state_bytes)
    local place = first_place(record)
    if not place then return nil end
    local state = state_bytes and read_state(state_bytes)
    if state and (state.attempt > 0 or state.reason ~= 0 or state.generation ~= generation_of(record)) then return nil end
    return (struct.unpack('>i8', record, place))
  end
  local function with_first(record, first)
    local place = first_place(record)
    return place and sub(record, 1, place - 1) .. struct.pack('>i8', first) .. sub(record, place + 8) or record
  end

  local NONE = {}
  local newly_applied, leave_held, leave_dead, forget, outdated, leave_due, unheld = {}, {}, {}, {}, {}, {}, {}

  -- Not a function: one over so many names costs as much as the rest of the block.
  judged = {}
  for i = 1, count do
    local at = (i - 1) * WIDTH
    local record, time, policy, flags = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], tonumber(string.match(ARGV[at + 5], '^%d+'))
    local id, broker, was = ids[i], brokers[i], live[i]
    local due = time_of(time)
    local due_text = byte(time, 1) == EQUALS and sub(time, 2) or int(due)
    local own_queues = string.match(ARGV[i * WIDTH], ' (.*)$')
    local maybe_redelivered, is_full = has(flags, 1), has(flags, 2)
    local stated, max_wait = due, byte(policy, 1) == DEBOUNCE and tonumber(string.match(policy, '^debounce (%d+)$'))
    local verdict

    -- The existing job.
    local dead, state, was_due, unreadable, claimed, dead_key, is_held = false, nil, nil, false, NONE, DEAD, false
    -- The time of the first request of a job that waits without an attempt.
    local first
    if was then
      state = call('HGET', STATE, id)
      unreadable = not (is_known(was) and names_owner(was) and is_readable(state))
      dead_key = unreadable and DEAD or dead_of(set_of(was))
      dead = call('ZSCORE', dead_key, id)
      if not unreadable then
        was_due = tonumber(call('ZSCORE', DUE[set_of(was)], id) or nil)
        is_held = not was_due and not dead and call('ZSCORE', HELD, id)
        if not was_due and not dead and not is_held then
          local claimed_due
          claimed, claimed_due = find_claimed(id)
          was_due = claimed_due
          -- The job is in no place: an earlier call lacked a permission and stopped after the record.
          if #claimed == 0 and not state then was = nil end
        end
        if max_wait and was_due and #claimed == 0 then first = first_of(was, state) end
        if state then was_due = read_state(state).due end
      end
    end

    -- Applied before: nothing changes, and the answer is the same. The generation identifies a repeat of
    -- this very call, whether or not the broker identifies the message.
    local over = completed[i] or completed_old[i]
    local named = places[i]
    local place = has(byte(record, 2), FLAG_CALL_ID) and named + 1
    local repeated = place and (applied[place] or applied_old[place])
    local told, told_due
    if repeated then told, told_due = read_applied(repeated) end
    if was and not unreadable and generation_of(was) == generation_of(record) then
      verdict, due = schedule_verdict_of(was), was_due
    elseif over and completed_generation(over) == generation_of(record) then
      verdict, due = completed_verdict(over), completed_due(over)
    elseif told then
      verdict, due = told, tonumber(told_due)
    elseif policy == 'other' then
      if was or over or applied[named] or applied_old[named] then verdict, due = 'duplicate', nil end
    elseif maybe_redelivered then
      local act = applied[named] or applied_old[named]
      local fingerprint = (was or over) and fingerprint_of(record)
      if was and not unreadable and fingerprint_of(was) == fingerprint then
        verdict, due = schedule_verdict_of(was), was_due
      elseif over and completed_fingerprint(over) == fingerprint then
        verdict, due = completed_verdict(over), completed_due(over)
      elseif act then
        told, told_due = read_applied(act)
        if told then verdict, due = told, tonumber(told_due) end
      end
    end

    if not verdict and own_queues and was and is_known(was) and names_owner(was) and not is_own(set_of(was), own_queues) then
      verdict, due = 'taken', nil
    end
    if not verdict and unreadable then verdict, due = 'unreadable', nil end
    if not verdict and recurring[i] then
      local theirs = occurrence_record(recurring[i])
      if own_queues and is_known(theirs) and names_owner(theirs) and not is_own(set_of(theirs), own_queues) then
        verdict, due = 'taken', nil
      else
        verdict, due = 'conflict', nil
        push(newly_applied, fingerprint_of(record), applied_entry(verdict))
        if has(byte(record, 2), FLAG_CALL_ID) then push(newly_applied, generation_of(record), applied_entry(verdict)) end
      end
    end
    if max_wait and not verdict then
      -- A master that is new may have an earlier clock.
      local now = math.ceil(NOW_US / 1000)
      first = math.min(first or now, now)
      due = math.min(due, first + max_wait)
      due_text = int(due)
    end
    if not verdict and was and not dead then
      -- At its bound a job that debounces keeps its due time, although each request states a later one.
      local same = digest_of(was) == digest_of(record) and was_due == due and due == stated
      if same or has(string.byte(record, 2), FLAG_GENERATED) then verdict = 'duplicate'
      elseif policy == 'keep' then verdict = 'kept'
      elseif policy == 'reject' then verdict = 'conflict' end
      if verdict then
        push(newly_applied, fingerprint_of(record), applied_entry(verdict, was_due))
        if has(byte(record, 2), FLAG_CALL_ID) then push(newly_applied, generation_of(record), applied_entry(verdict, was_due)) end
        due = was_due
      end
    end
    if not verdict and is_full and (not was or dead) then verdict, due = 'full', nil end

    local is_stored = not verdict
    if is_stored then verdict = was and not dead and 'replaced' or 'added' end
    if is_stored and was then
      push_schedule(newly_applied, was, was_due)
      push(leave_held, id)
      if is_held and is_of_queue(was) then unheld[set_of(was)] = (unheld[set_of(was)] or 0) + 1 end
      take_all_out(claimed)
      leave_dead[dead_key] = leave_dead[dead_key] or {}
      push(leave_dead[dead_key], id)
      if state then push(forget, id) end
      for name, key in pairs(DUE) do
        if name ~= broker then
          leave_due[key] = leave_due[key] or {}
          push(leave_due[key], id)
        end
      end
    end
    -- The id gets a new job: applied remembers the outcome of the last one by its fingerprint.
    if is_stored then
      if completed[i] then push_over(newly_applied, completed[i]) end
      if completed_old[i] then push_over(newly_applied, completed_old[i]) end
      if over then push(outdated, id) end
      if verdict == 'replaced' then
        record = string.sub(record, 1, 1) .. string.char(string.byte(record, 2) + FLAG_REPLACED) .. string.sub(record, 3)
      end
      if max_wait then record = with_first(record, first) end
    end
    judged[i] = { is_stored, verdict, due or false, due_text, record }
  end

  leave = function()
    remember_applied(newly_applied)
    if #records == 0 and #newly_applied == 0 then touch() end
    for key, list in pairs(leave_dead) do many('ZREM', key, list) end
    many('HDEL', STATE, forget)
    many('HDEL', COMPLETED, outdated)
    many('HDEL', COMPLETED_OLD, outdated)
    for key, list in pairs(leave_due) do many('ZREM', key, list) end
    many('ZREM', HELD, leave_held)
  end

  close = function()
    for set, number in pairs(unheld) do count_held(set, -number) end
    if ALL_CLAIMS then close_claims(ALL_CLAIMS) end
    if is_new then see_master(true) end
    if #newly_applied > 0 then rotate_applied() end
  end
end
if unknown then return redis.error_reply('DWELL_BROKER ' .. table.concat(unknown, ' ')) end

for i = 1, count do
  local at = (i - 1) * WIDTH
  local id, record, time, broker = ids[i], ARGV[at + 2], ARGV[at + 3], brokers[i]
  local flags = tonumber(ARGV[at + 5]) or tonumber(string.match(ARGV[at + 5], '^%d+'))
  local is_stored, verdict, due, due_text = true, 'added', nil, nil
  if judged then
    is_stored, verdict, due, due_text, record = unpack(judged[i])
  elseif byte(time, 1) == EQUALS then
    due_text = sub(time, 2)
    due = tonumber(due_text)
  else
    -- As time_of.
    local ms = tonumber(sub(time, 2))
    due = ms > 0 and math.ceil(NOW_US / 1000) + ms or NOW
    due_text = string.format('%.0f', due)
  end
  if is_stored then
    if floor(flags / 4) % 2 == 1 and ENDS then
      local expires = tonumber(string.match(ARGV[at + 5], '^%d+@(%-?%d+)'))
      ends = ends or {}
      ends[#ends + 1] = string.format('%.0f', math.min(due, expires or due))
      ends[#ends + 1] = id
    end
    added = added + 1
    records[2 * added - 1], records[2 * added] = id, record
    local entering = enter_due[broker]
    if entering then
      local number = entering.count + 1
      entering.count, entering[2 * number - 1], entering[2 * number] = number, due_text, id
      if due < entering.earliest then entering.earliest, entering.earliest_text = due, due_text end
    else
      enter_due[broker] = { due_text, id, count = 1, earliest = due, earliest_text = due_text }
    end
    answer[2 * i + 1], answer[2 * i + 2] = verdict, due_text
  else
    answer[2 * i + 1], answer[2 * i + 2] = verdict, due and string.format('%.0f', due) or ''
  end
end

-- A look at the head checks the type of the key, too. A new id leaves the head as it is, or becomes the head.
if is_plain then
  for broker, list in pairs(enter_due) do
    list.is_first = #call('ZRANGEBYSCORE', DUE[broker], '-inf', '(' .. list.earliest_text, 'LIMIT', 0, 1) == 0
    if byte(broker, 1) == EQUALS then list.is_known = call('HEXISTS', QUEUES, broker) == 1 end
  end
end
if ends then call('ZADD', ENDS, unpack(ends)) end
if added > 0 then call('HSET', JOBS, unpack(records)) end
if leave then leave() end
for broker, list in pairs(enter_due) do
  if byte(broker, 1) == EQUALS and not list.is_known then call('HSETNX', QUEUES, broker, '0') end
  local new = call('ZADD', DUE[broker], unpack(list))
  local is_first = list.is_first
  -- The head may have been one of these jobs, or an id without a job, which has another time now.
  if not is_first and (judged or new < list.count) then
    is_first = #call('ZRANGEBYSCORE', DUE[broker], '-inf', '(' .. list.earliest_text, 'LIMIT', 0, 1) == 0
  end
  if is_first then
    answer[#answer + 1] = broker
    answer[#answer + 1] = list.earliest_text
  end
end
if close then close() end
return answer
