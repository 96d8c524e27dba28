-- change_schedule: changes recurring schedules of this bucket, and makes their occurrences. The caller has read
--        the schedule and decided; the script applies that to the schedule that was read, or to none.
-- KEYS   as in prelude.lua, with the sets of the occurrences, and of the other jobs whose ids are named; then
--        schedule_times, schedule_states, schedules.
-- ARGV   deadline of the call, epoch us ('' none); '1' if the call has one change and its refusal is an error;
--        then per change: id; its state as it was read ('' there is no such schedule); the new state ('' the
--        schedule is removed, '=' nothing changes); the new record ('' keeps it); the next time, ms ('' none, or
--        the schedule is paused); the id of a job that must not be alive ('' none); the id and the generation of
--        an occurrence that is taken out if it is unattempted ('' none); fingerprint of the inbound message ('' of
--        none), bits (1: look up the fingerprint; 2: remember the verdict, although nothing changes), followed
--        by ' ' and the queues of the caller, if those are not all; verdict ('' the request is refused, unless
--        it was applied before), due ms ('' unknown); number of occurrences, and of each: id, record, due ms.
--        The ids of the schedules of one call are distinct; the occurrences of a schedule have one set.
-- Answer { now us, number of changes, then six per change: result, verdict, due ms, what became of the occurrence
--        to take out, set and due ms of the occurrence that is the first of its set by now ('' none) }.
--        Results: done | before (this inbound message was applied before: its verdict) | conflict (a job that
--        is alive has the id of the new schedule) | refused. Or nothing changed: stale (the state is another) |
--        exists (verdict: the id of an occurrence that another job has) | alive | foreign (the schedule, or the
--        job that has its id, is of others) | unreadable (the job is damaged or of a later version).
--        Taken out: cancelled | in_flight (an attempt is out: the job stays) | '' (neither).
--        A repeat changes nothing: the state is another by then.
-- Errors 'DWELL_BROKER n set n set ...': KEYS lack all of these; n: the place of the change in the call, from 1.
--        'DWELL_LATE now us': the deadline has passed. If a refusal is an error: 'DWELL_AGAIN id' is stale,
--        'DWELL_EXISTS id' is exists. Nothing was written.
-- Work   <= 128 occurrences or 1 MiB a call; some commands for each. First write HDEL if a schedule is removed and
--        nothing made, else HSET: a full Redis refuses the call before any change.
local SCHEDULE_TIMES, SCHEDULE_STATES = KEYS[#KEYS - 3], KEYS[#KEYS - 2]
-- As sound.lua does: nothing is written where a key has the wrong type.
call('ZCARD', SCHEDULE_TIMES)
call('HLEN', SCHEDULE_STATES)
local WIDTH = 13
if is_late(tonumber(ARGV[1])) then return late() end
local refusal_is_error = ARGV[2] == '1'

-- The job of an id; its set, if the record can be read. All sets that KEYS lack are named at once.
local unknown = {}
local function job_of(place, id)
  local record = id ~= '' and call('HGET', JOBS, id)
  if not record then return nil end
  local job = { id = id, record = record }
  if is_known(record) and names_owner(record) then
    job.set = set_of(record)
    if not DUE[job.set] then push(unknown, place, job.set) end
  end
  return job
end

local changes, at = {}, 3
while at <= #ARGV do
  local place = #changes + 1
  local one = { id = ARGV[at], read = ARGV[at + 1], state = ARGV[at + 2], record = ARGV[at + 3], next = ARGV[at + 4],
                fingerprint = ARGV[at + 8], verdict = ARGV[at + 10], due = ARGV[at + 11], made = {} }
  one.bits = tonumber(string.match(ARGV[at + 9], '^%d+'))
  one.own_queues = string.match(ARGV[at + 9], ' (.*)$')
  one.overlaps = job_of(place, ARGV[at + 5])
  one.take, one.take_generation = job_of(place, ARGV[at + 6]), ARGV[at + 7]
  -- What is removed without a schedule, by fsck, concerns no job.
  one.job = one.read == '' and one.state ~= '' and job_of(place, one.id) or nil
  local count = tonumber(ARGV[at + 12])
  at = at + WIDTH
  for n = 1, count do
    local record = ARGV[at + 1]
    one.set = set_of(record)
    if not DUE[one.set] then push(unknown, place, one.set) end
    one.made[n] = { id = ARGV[at], record = record, due = ARGV[at + 2], was = job_of(place, ARGV[at]) }
    at = at + 3
  end
  changes[place] = one
end
if #unknown > 0 then return redis.error_reply('DWELL_BROKER ' .. table.concat(unknown, ' ')) end
local is_new = JOB_COUNT == 0 and call('HEXISTS', STATE, '') == 0

local function is_dead(job) return call('ZSCORE', dead_of(job.set), job.id) end
-- An earlier call wrote the record and stopped: the job is in no place.
local function is_lost(job)
  return job.set and call('HEXISTS', STATE, job.id) == 0 and not call('ZSCORE', DUE[job.set], job.id) and not is_dead(job)
    and not call('ZSCORE', HELD, job.id) and #find_claimed(job.id) == 0
end

-- Answers without a change of the schedule.
local function told(one, result, verdict, due)
  if one.fingerprint ~= '' and has(one.bits, 2) then
    remember_applied({ one.fingerprint, verdict .. ':' .. due })
    rotate_applied()
  else
    touch()
  end
  return result, verdict, due
end

-- Whether the caller may not see the schedule, or the job that has its id.
local function is_foreign(one, exists)
  if not one.own_queues then return false end
  local record = exists and occurrence_record(call('HGET', SCHEDULES, one.id) or '') or one.job and one.job.record
  return record and is_known(record) and names_owner(record) and not is_own(set_of(record), one.own_queues)
end

-- Takes the newest occurrence out if nothing was attempted. A job of another generation is another's.
local function take_out_unattempted(one)
  local job = one.take
  if not (job and job.set and generation_of(job.record) == one.take_generation) then return '' end
  local bytes = call('HGET', STATE, job.id)
  if not is_readable(bytes) then return '' end
  if call('ZSCORE', DUE[job.set], job.id) then
    local state = bytes and read_state(bytes)
    if state and (state.attempt > 0 or state.reason ~= 0) then return '' end
    call('ZREM', DUE[job.set], job.id)
    call('HDEL', JOBS, job.id)
    call('HDEL', STATE, job.id)
    return 'cancelled'
  end
  if is_held_early(bytes) then return 'in_flight' end
  if is_dead(job) or call('ZSCORE', HELD, job.id) then return '' end
  return #find_claimed(job.id) > 0 and 'in_flight' or ''
end

-- Makes the occurrences. Answers the set and the due time of the first, if it is the first of the set by now.
local function make(one)
  local records, entering, ends, earliest = {}, {}, {}, nil
  for _, job in ipairs(one.made) do
    if not job.was or is_lost(job.was) then
      push(records, job.id, job.record)
      push(entering, job.due, job.id)
      if may_expire(job.record) then push(ends, job.due, job.id) end
      earliest = math.min(earliest or tonumber(job.due), tonumber(job.due))
    end
  end
  if not earliest then return '', '' end
  many('ZADD', ENDS, ends)
  many('HSET', JOBS, records)
  enter(one.set)
  many('ZADD', DUE[one.set], entering)
  local head = call('ZRANGE', DUE[one.set], 0, 0, 'WITHSCORES')
  if tonumber(head[2]) ~= earliest then return '', '' end
  return one.set, int(earliest)
end

local function change(one)
  local id = one.id
  if one.fingerprint ~= '' and has(one.bits, 1) then
    local act = call('HGET', APPLIED, one.fingerprint) or call('HGET', APPLIED_OLD, one.fingerprint)
    local verdict, due = read_applied(act or '')
    if verdict then
      touch()
      return 'before', verdict, due
    end
  end
  local exists = call('HEXISTS', SCHEDULES, id) == 1
  if (exists and call('HGET', SCHEDULE_STATES, id) or '') ~= one.read then return 'stale' end
  if is_foreign(one, exists) then
    touch()
    return 'foreign'
  end
  if one.verdict == '' and one.fingerprint ~= '' then
    touch()
    return 'refused'
  end
  local applied = {}
  if one.job then
    local state_bytes = call('HGET', STATE, id)
    if not one.job.set or not is_readable(state_bytes) then
      touch()
      return 'unreadable'
    end
    if not is_lost(one.job) then
      local due = state_bytes and read_state(state_bytes).due or tonumber(call('ZSCORE', DUE[one.job.set], id) or nil)
      if not is_dead(one.job) then return told(one, 'conflict', 'conflict', due and int(due) or '') end
      push_schedule(applied, one.job.record, due)
    end
  end
  if one.overlaps and one.overlaps.set and not is_dead(one.overlaps) and not is_lost(one.overlaps) then return 'alive' end
  for _, job in ipairs(one.made) do
    local is_same = job.was and generation_of(job.was.record) == generation_of(job.record)
    -- The repeat of a request was answered above: the same occurrence is that of an earlier one.
    if job.was and not (is_same and (one.fingerprint == '' or is_lost(job.was))) then return 'exists', job.id end
  end
  if one.state == '=' then return told(one, 'done', one.verdict, one.due) end

  local set, first = make(one)
  local verdict, taken = one.verdict, ''
  if one.state == '' then
    call('HDEL', SCHEDULES, id)
    call('ZREM', SCHEDULE_TIMES, id)
    call('HDEL', SCHEDULE_STATES, id)
    taken = take_out_unattempted(one)
    if taken == 'in_flight' then verdict = taken end
  else
    if one.record ~= '' then call('HSET', SCHEDULES, id, one.record) end
    call('HSET', SCHEDULE_STATES, id, one.state)
    if one.next ~= '' then call('ZADD', SCHEDULE_TIMES, one.next, id) else call('ZREM', SCHEDULE_TIMES, id) end
  end
  if one.job then
    call('ZREM', dead_of(one.job.set), id)
    call('HDEL', JOBS, id)
    call('HDEL', STATE, id)
  end
  if one.fingerprint ~= '' then push(applied, one.fingerprint, verdict .. ':' .. one.due) end
  remember_applied(applied)
  if #applied > 0 then rotate_applied() end
  return 'done', verdict, one.due, taken, set, first
end

local answer = { NOW_US, #changes }
for _, one in ipairs(changes) do
  local result, verdict, due, taken, set, first = change(one)
  if refusal_is_error and result == 'stale' then return redis.error_reply('DWELL_AGAIN ' .. one.id) end
  if refusal_is_error and result == 'exists' then return redis.error_reply('DWELL_EXISTS ' .. verdict) end
  push(answer, result, verdict or '', due or '')
  push(answer, taken or '', set or '', first or '')
end
if is_new and call('HLEN', JOBS) > 0 then see_master(true) end
return answer
