-- Shared by the actions on one job (cancel reschedule fire finish fail requeue): reads the job and
-- writes the verdict. Follows prelude.lua.
-- ARGV   id, fingerprint of the inbound message (8 random bytes for a call), bits (1: look up the
--        fingerprint; 2: a message, which may be redelivered after later ones), followed by ':' and the
--        deadline of the call, epoch us, if the caller knows Redis's clock, and by ' ' and the queues of
--        the caller, if those are not all: a job of others is not_found; then those of the action.
-- Answer { verdict, due ms ('' unknown) }. Repeating an action that changed something changes nothing
--        and has the same answer. The verdict of an action that changed nothing is remembered only if
--        its repeat could change a newer job, and never for a call: a call is repeated only before its
--        answer, and a later request waits for that answer.
-- Errors 'DWELL_BROKER 1 set': KEYS lack this broker or queue; 'DWELL_VERSION id': this version cannot read the
--        record; 'DWELL_SCHEDULE id': a recurring schedule has the id, and change_schedule.lua carries the action
--        out; 'DWELL_LATE now us': the deadline has passed. Nothing was written.
local id, fingerprint, bits = ARGV[1], ARGV[2], tonumber(string.match(ARGV[3], '^%d+'))
local own_queues = string.match(ARGV[3], ' (.*)$')
if is_late(tonumber(string.match(ARGV[3], '^%d+:(%d+)') or nil)) then return late() end
if has(bits, 1) then
  local act = call('HGET', APPLIED, fingerprint) or call('HGET', APPLIED_OLD, fingerprint)
  if act then
    touch()
    return { read_applied(act) }
  end
end

local record = call('HGET', JOBS, id)
if not record and SCHEDULE_COUNT > 0 and call('HEXISTS', SCHEDULES, id) == 1 then return redis.error_reply('DWELL_SCHEDULE ' .. id) end
if record and own_queues and is_known(record) and names_owner(record) and not is_own(set_of(record), own_queues) then
  touch()
  return { 'not_found', '' }
end
local state_bytes = record and call('HGET', STATE, id)
if record and not (is_known(record) and names_owner(record) and is_readable(state_bytes)) then return redis.error_reply('DWELL_VERSION ' .. id) end
if record and not DUE[set_of(record)] then return redis.error_reply('DWELL_BROKER 1 ' .. set_of(record)) end
local due_key, dead_key = record and DUE[set_of(record)], record and dead_of(set_of(record))
local waits = record and call('ZSCORE', due_key, id)
local dead = record and call('ZSCORE', dead_key, id)
local runs = record and not waits and not dead
local is_held = runs and call('ZSCORE', HELD, id)
local claimed, claimed_due = {}, nil
if runs and not is_held then claimed, claimed_due = find_claimed(id) end
local state = record and (state_bytes and read_state(state_bytes) or new_state(record, tonumber(waits or claimed_due or NOW)))
-- The attempt in flight counts.
if #claimed > 0 then count_attempt(state) end
-- On its way to the dead letters: there will be no further attempt.
local dying = record and not dead and state.reason ~= 0

-- The action changed something. These are the last writes of the script: a full Redis accepts them
-- after a write that frees memory, and refuses them as first writes.
local function answer_applied(verdict, due, more)
  local applied = more or {}
  push(applied, fingerprint, applied_entry(verdict, due))
  remember_applied(applied)
  rotate_applied()
  return { verdict, due and int(due) or '' }
end

-- The action changed nothing. is_harmless: a repeat cannot change anything either, whatever the job is
-- by then.
local function unchanged(verdict, due, is_harmless)
  if has(bits, 2) and not is_harmless then return answer_applied(verdict, due) end
  touch()
  return { verdict, due and int(due) or '' }
end

-- Answers for a missing job, by the entry of completed.
local function answer_over(is_harmless)
  local over = call('HGET', COMPLETED, id) or call('HGET', COMPLETED_OLD, id)
  local outcome = over and (not own_queues or is_own(completed_owner(over), own_queues)) and completed_outcome(over)
  if outcome == 'f' or outcome == 'n' then return unchanged('fired', completed_due(over), is_harmless) end
  return unchanged('not_found', nil, is_harmless)
end

local function leave()
  call('ZREM', due_key, id)
  call('ZREM', dead_key, id)
  call('HDEL', JOBS, id)
  call('HDEL', STATE, id)
  call('ZREM', HELD, id)
  if is_held then count_unheld(record) end
  take_all_out(claimed)
  if #claimed > 0 then close_claims(ALL_CLAIMS) end
  -- Else the entry would stay up to the due time. It is a hint: nothing depends on this write.
  if ENDS and may_expire(record) then redis.pcall('ZREM', ENDS, id) end
end

-- Moves the job to due at this time. A waiting job is not removed first: while a slot migrates, its
-- master refuses a key that became empty.
local function wait_until(due)
  call('ZREM', dead_key, id)
  enter(set_of(record))
  call('ZADD', due_key, int(due), id)
  call('HSET', STATE, id, write_state(state))
  call('ZREM', HELD, id)
  if is_held then count_unheld(record) end
  take_all_out(claimed)
  if #claimed > 0 then close_claims(ALL_CLAIMS) end
end

-- Whether an attempt may be unknown to this master: the job was due before the master changed, or so
-- soon after that it could be claimed before.
local function is_doubtful()
  if has(state.marks, DOUBT) then return true end
  local changed = see_master()
  return changed > 0 and math.min(tonumber(waits), state.due) <= changed + CLAIM_AHEAD
end
