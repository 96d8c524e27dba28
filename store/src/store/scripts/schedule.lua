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
-- Work   <= 128 jobs or 1 MiB a call; a constant number of commands, and three per job whose id exists.
--        First write ZADD or HSET: a full Redis refuses the call before any change.
local WIDTH, EQUALS, DEBOUNCE = 5, string.byte('='), string.byte('d')
local count = math.floor(#ARGV / WIDTH)
if is_late(tonumber(ARGV[count * WIDTH + 1])) then return late() end
-- An empty batch tests whether Redis accepts requests. It writes, because the durability gate waits for
-- writes only.
if count == 0 then
  touch()
  return { NOW_US, 0 }
end
local ids, brokers, unknown = {}, {}, {}
-- All sets that KEYS lack are named at once: a call with 128 jobs of other queues is sent twice, not 128
-- times.
local function need(i, set)
  if not DUE[set] then push(unknown, i, set) end
end
for i = 1, count do
  local record = ARGV[(i - 1) * WIDTH + 2]
  ids[i], brokers[i] = ARGV[(i - 1) * WIDTH + 1], set_of(record)
  need(i, brokers[i])
end
local live = call('HMGET', JOBS, unpack(ids))
for i = 1, count do
  local was = live[i]
  if was and is_known(was) and names_owner(was) then need(i, set_of(was)) end
end
if #unknown > 0 then return redis.error_reply('DWELL_BROKER ' .. table.concat(unknown, ' ')) end
local is_new = JOB_COUNT == 0 and call('HEXISTS', STATE, '') == 0
-- The recurring schedules that have the ids.
local recurring = SCHEDULE_COUNT > 0 and call('HMGET', SCHEDULES, unpack(ids)) or {}
local function remembered(key, entries, list) return entries > 0 and call('HMGET', key, unpack(list)) or {} end
-- Ignores damaged entries: one must not fail the call, and with it all other jobs.
local function whole(entries)
  for i, entry in ipairs(entries) do
    if entry and #entry < COMPLETED_BYTES then entries[i] = false end
  end
  return entries
end
local completed = whole(remembered(COMPLETED, COMPLETED_COUNT, ids))
local completed_old = whole(remembered(COMPLETED_OLD, COMPLETED_OLD_COUNT, ids))
-- The fields to look up in applied: all fingerprints, then the generations of jobs with FLAG_FIRST.
local names, by_generation = {}, {}
if APPLIED_COUNT + APPLIED_OLD_COUNT > 0 then
  for i = 1, count do names[i] = fingerprint_of(ARGV[(i - 1) * WIDTH + 2]) end
  for i = 1, count do
    local record = ARGV[(i - 1) * WIDTH + 2]
    if has(byte(record, 2), FLAG_FIRST) then
      push(names, generation_of(record))
      by_generation[i] = #names
    end
  end
end
local applied = remembered(APPLIED, APPLIED_COUNT, names)
local applied_old = remembered(APPLIED_OLD, APPLIED_OLD_COUNT, names)

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
local records, newly_applied, leave_held, leave_dead, forget, outdated = {}, {}, {}, {}, {}, {}
local unheld = {}
local leave_due, enter_due, added = {}, {}, 0
local ends = {}
local answer = { NOW_US, count }

for i = 1, count do
  local at = (i - 1) * WIDTH
  local id, record, time, policy, flags = ids[i], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], tonumber(ARGV[at + 5])
  local own_queues, expires
  if not flags then
    flags, expires = string.match(ARGV[at + 5], '^(%d+)@?(%-?%d*)')
    flags, own_queues = tonumber(flags), string.match(ARGV[at + 5], ' (.*)$')
  end
  local check, is_full = has(flags, 1), has(flags, 2)
  local broker, was = brokers[i], live[i]
  local due_text, due
  if byte(time, 1) == EQUALS then
    due_text = sub(time, 2)
    due = tonumber(due_text)
  else
    due = time_of(time)
    due_text = int(due)
  end
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
  local place = by_generation[i]
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
    if was or over or applied[i] or applied_old[i] then verdict, due = 'duplicate', nil end
  elseif check then
    local act = applied[i] or applied_old[i]
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
      if has(byte(record, 2), FLAG_FIRST) then push(newly_applied, generation_of(record), applied_entry(verdict)) end
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
      if has(byte(record, 2), FLAG_FIRST) then push(newly_applied, generation_of(record), applied_entry(verdict, was_due)) end
      due = was_due
    end
  end
  if not verdict and is_full and (not was or dead) then verdict, due = 'full', nil end

  if not verdict then
    verdict = was and not dead and 'replaced' or 'added'
    if was then
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
    if completed[i] then push_over(newly_applied, completed[i]) end
    if completed_old[i] then push_over(newly_applied, completed_old[i]) end
    if over then push(outdated, id) end
    if verdict == 'replaced' then
      record = string.sub(record, 1, 1) .. string.char(string.byte(record, 2) + FLAG_REPLACED) .. string.sub(record, 3)
    end
    if max_wait then record = with_first(record, first) end
    if has(flags, 4) and ENDS then push(ends, int(math.min(due, tonumber(expires or '') or due)), id) end
    added = added + 1
    records[2 * added - 1], records[2 * added] = id, record
    local entering = enter_due[broker]
    if not entering then
      entering = { count = 0, earliest = due }
      enter_due[broker] = entering
    end
    entering.count = entering.count + 1
    entering[2 * entering.count - 1], entering[2 * entering.count] = due_text, id
    if due < entering.earliest then entering.earliest = due end
    answer[2 * i + 1], answer[2 * i + 2] = verdict, due_text
  else
    answer[2 * i + 1], answer[2 * i + 2] = verdict, due and int(due) or ''
  end
end

many('ZADD', ENDS, ends)
many('HSET', JOBS, records)
remember_applied(newly_applied)
if #records == 0 and #newly_applied == 0 then touch() end
for key, list in pairs(leave_dead) do many('ZREM', key, list) end
many('HDEL', STATE, forget)
many('HDEL', COMPLETED, outdated)
many('HDEL', COMPLETED_OLD, outdated)
for key, list in pairs(leave_due) do many('ZREM', key, list) end
many('ZREM', HELD, leave_held)
for broker, list in pairs(enter_due) do
  enter(broker)
  many('ZADD', DUE[broker], list)
end
for set, number in pairs(unheld) do count_held(set, -number) end
if ALL_CLAIMS then close_claims(ALL_CLAIMS) end
if is_new then see_master(true) end
if #newly_applied > 0 then rotate_applied() end
for broker, list in pairs(enter_due) do
  local head = call('ZRANGE', DUE[broker], 0, 0, 'WITHSCORES')
  if tonumber(head[2]) == list.earliest then push(answer, broker, int(list.earliest)) end
end
return answer
