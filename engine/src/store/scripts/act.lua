-- Put between prelude.lua and each action on one job (cancel reschedule fire finish fail requeue): what stands there, and the answer.
-- ARGV   id, fingerprint of the inbound message (or 8 random bytes of a call), bits (1: look the fingerprint up; 2: a message, which may come again behind
--        later ones) and, where the caller knows this clock, ':' and until when it waits for the answer, epoch us; then the action's own.
-- Answer { verdict, due ms ('' unknown) }. The repeat of an action that changed something changes nothing and has the same answer. The verdict of an action
--        that changed nothing is remembered only where its repeat could change a newer job. The verdict of a call never is: a call is repeated only
--        before it is answered, and so before a later request that waits for that answer.
-- Errors 'DWELL_BROKER name': a broker that KEYS lack; 'DWELL_VERSION id': a record that this version cannot read; 'DWELL_LATE now us': nobody
--        waits for the answer any more. Nothing was written.
local id, fingerprint, bits = ARGV[1], ARGV[2], tonumber(string.match(ARGV[3], '^%d+'))
if is_late(tonumber(string.match(ARGV[3], ':(%d+)$') or nil)) then return late() end
if has(bits, 1) then
  local act = call('HGET', ACTS, fingerprint) or call('HGET', ACTS_OLD, fingerprint)
  if act then
    touch()
    return { read_act(act) }
  end
end

local record = call('HGET', JOBS, id)
local state_bytes = record and call('HGET', STATE, id)
if record and not (is_known(record) and names_broker(record) and is_readable(state_bytes)) then return redis.error_reply('DWELL_VERSION ' .. id) end
if record and not DUE[broker_of(record)] then return redis.error_reply('DWELL_BROKER ' .. broker_of(record)) end
local due_key = record and DUE[broker_of(record)]
local waits = record and call('ZSCORE', due_key, id)
local dead = record and call('ZSCORE', DEAD, id)
local runs = record and not waits and not dead
local state = record and (state_bytes and read_state(state_bytes) or new_state(record, tonumber(waits or NOW)))
-- On its way to the dead letters: no attempt will be made any more.
local dying = record and not dead and state.reason ~= 0

-- It changed something: the last writes of the script. Behind a write that frees a full Redis takes them, as first writes it refuses them.
local function applied(verdict, due, more)
  local acts = more or {}
  push(acts, fingerprint, act_entry(verdict, due))
  remember_acts(acts)
  turn_acts()
  return { verdict, due and int(due) or '' }
end

-- It changed nothing. is_harmless: whatever stands there when it comes again, it changes nothing either.
local function unchanged(verdict, due, is_harmless)
  if has(bits, 2) and not is_harmless then return applied(verdict, due) end
  touch()
  return { verdict, due and int(due) or '' }
end

-- The job is not here: what is remembered of it.
local function answer_over(is_harmless)
  local over = call('HGET', GONE, id) or call('HGET', GONE_OLD, id)
  local outcome = over and gone_outcome(over)
  if outcome == 'f' or outcome == 'n' then return unchanged('fired', gone_due(over), is_harmless) end
  return unchanged('not_found', nil, is_harmless)
end

local function leave()
  call('ZREM', due_key, id)
  call('ZREM', RUN, id)
  call('ZREM', DEAD, id)
  call('HDEL', JOBS, id)
  call('HDEL', STATE, id)
end

-- To due, at this time. Where it waits already it is not taken out before: a cluster's slot that leaves refuses a key that became empty.
local function wait_until(due)
  call('ZREM', DEAD, id)
  call('ZREM', RUN, id)
  call('ZADD', due_key, int(due), id)
  call('HSET', STATE, id, write_state(state))
end

-- Whether the schedule may have been published without a trace of it: it was due before the master changed, or so soon after that it was claimed before.
local function is_doubtful()
  if has(state.marks, DOUBT) then return true end
  local changed = see_master()
  return changed > 0 and math.min(tonumber(waits), state.due) <= changed + CLAIM_AHEAD
end

local function time_of(text)
  if string.sub(text, 1, 1) == '=' then return tonumber(string.sub(text, 2)) end
  return relative_time(text)
end
