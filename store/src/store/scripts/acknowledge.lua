-- acknowledge: the consumers of a queue end the leases of their jobs, or prolong them.
-- KEYS   as in prelude.lua, with due and dead of each queue of the jobs.
-- ARGV   five per job: lease action, id, set of the queue, nonce of its pop, and by the action:
--          finish   ''
--          fail     '+' wait ms ('' the retry array is at its end: dead), the expiry, ':', error
--          release  '+' wait ms, the expiry
--          touch    '+' lease ms from now
--          drop     '' (the job is over, and remembered as dropped)
--          bury     code of the reason, ':', error
--        The expiry: '<' and epoch ms, or ''. A wait that would end past the expiry is not begun: dead.
--        The ids of one call are distinct.
-- Answer per job: verdict, ms: finished | failed, due | dead | released, due | touched, deadline | dropped |
--        stale (the lease is another's, or over) | fired (the job was finished before) | not_found (also:
--        the job is of another queue; finish, fail, release: its pop hands the job out later). The last
--        three changed nothing. A repeated fail or release answers as before.
-- Errors 'DWELL_BYTES id': the records that show the queues of the jobs are too large for one call. Nothing
--        was written: call with one job at a time.
-- Work   <= 128 jobs; of those that are held under another lease, up to 1 MiB of records. First write HDEL,
--        so that a full Redis accepts the call.
local REASON_FAILED, REASON_EXPIRED = 4, 6
-- The words of consumers that end a lease. Those of Dwell itself are also for jobs that no consumer has yet.
local ENDS_LEASE = { finish = true, fail = true, release = true }
local answer, over, finished, unheld = {}, {}, {}, {}
local states, held, leave = {}, {}, {}
local dues, deads = {}, {}
local looked = 0

local function is_completed(id, set)
  local entry = call('HGET', COMPLETED, id) or call('HGET', COMPLETED_OLD, id)
  local outcome = entry and completed_owner(entry) == set and completed_outcome(entry)
  return outcome == 'f' or outcome == 'n'
end
-- Whether the job is of the queue that the lease names. A consumer can forge a lease: the answer must reveal
-- nothing of the jobs of other queues. Reads the record, which may be large, only if no set shows the queue.
local function is_of(id, set)
  if call('ZSCORE', DUE[set], id) or call('ZSCORE', dead_of(set), id) then return true end
  looked = looked + call('HSTRLEN', JOBS, id)
  if looked > 1048576 and #ARGV > 5 then return nil end
  local record = call('HGET', JOBS, id)
  return record and is_known(record) and set_of(record) == set
end
-- A failed script is not rolled back: each key is read before the first write, as the check of its type.
local function put(list, key, score, id)
  if not list[key] then
    call('ZCARD', key)
    list[key] = {}
  end
  push(list[key], int(score), id)
end
local function is_past(ms, expires) return expires ~= '' and ms >= tonumber(expires) end
local function leaves(id, set)
  push(leave, id)
  unheld[set] = (unheld[set] or 0) + 1
end

local ids = {}
for i = 2, #ARGV, 5 do push(ids, ARGV[i]) end
local olds = many('HMGET', STATE, ids)
for i = 1, #ARGV, 5 do
  local word, id, set, nonce, more = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local bytes = olds[(i + 4) / 5]
  local deadline = bytes and call('ZSCORE', HELD, id)
  local verdict, ms = 'stale', nil
  local holds = bytes and is_readable(bytes) and pop_of(bytes) == nonce and DUE[set]
  if not bytes and call('HEXISTS', JOBS, id) == 0 then
    verdict = is_completed(id, set) and 'fired' or 'not_found'
  elseif not holds then
    local is_own = is_of(id, set)
    if is_own == nil then return redis.error_reply('DWELL_BYTES ' .. id) end
    verdict = is_own and 'stale' or 'not_found'
  elseif holds and not deadline then
    -- The marks keep the end of this lease until the job is handed out again.
    local state = read_state(bytes)
    local dead = state.reason ~= 0
    if word == 'fail' and has(state.marks, FAILED) then
      verdict, ms = dead and 'dead' or 'failed', not dead and call('ZSCORE', DUE[set], id) or nil
    elseif word == 'release' and has(state.marks, RELEASED) then
      verdict, ms = dead and 'dead' or 'released', not dead and call('ZSCORE', DUE[set], id) or nil
    end
    ms = ms and tonumber(ms)
  elseif holds and deadline and tonumber(deadline) > NOW then
    if ENDS_LEASE[word] and is_held_early(bytes) then
      verdict = 'not_found'
    elseif word == 'touch' then
      verdict, ms = 'touched', time_of(more)
      push(held, int(ms), id)
    elseif word == 'finish' or word == 'drop' then
      verdict = word == 'finish' and 'finished' or 'dropped'
      push(finished, id)
      push(over, id, completed_entry_of(word == 'finish' and 'n' or 'd', bytes, set))
      leaves(id, set)
    else
      local state = read_state(bytes)
      state.flags, state.crashes = 0, 0
      if word == 'release' then
        local expires
        more, expires = string.match(more, '^(%+%d+)<?(%-?%d*)$')
        verdict, ms = 'released', time_of(more)
        state.marks = state.marks + RELEASED
        if is_past(ms, expires) then state.reason, state.error = REASON_EXPIRED, 'released past its expiry' end
      elseif word == 'fail' then
        local wait, expires, why = string.match(more, '^(%+?%d*)<?(%-?%d*):(.*)$')
        state.error, state.marks = why, state.marks + FAILED
        if wait == '' then
          state.reason = REASON_FAILED
        else
          verdict, ms = 'failed', time_of(wait)
          state.step = math.min(state.step + 1, 65535)
          if is_past(ms, expires) then state.reason = REASON_EXPIRED end
        end
      elseif word == 'bury' then
        local code, why = string.match(more, '^(%d+):(.*)$')
        state.reason, state.error = tonumber(code), why
      end
      if state.reason ~= 0 then
        verdict, ms = 'dead', nil
        put(deads, dead_of(set), NOW, id)
      else
        put(dues, DUE[set], ms, id)
      end
      push(states, id, write_state(state))
      leaves(id, set)
    end
  end
  push(answer, verdict, ms and int(ms) or '')
end

if #states == 0 and #finished == 0 and #held == 0 then
  touch()
  return answer
end
local completed = #over > 0 and call('HLEN', COMPLETED)
if #leave > 0 then call('HLEN', QUEUES) end
-- The first write checks its key, too.
if #finished == 0 then call('HDEL', APPLIED, '-') end
many('HDEL', JOBS, finished)
many('HDEL', STATE, finished)
many('HSET', STATE, states)
for key, list in pairs(dues) do many('ZADD', key, list) end
for key, list in pairs(deads) do many('ZADD', key, list) end
many('ZADD', HELD, held)
many('ZREM', HELD, leave)
for set, number in pairs(unheld) do count_held(set, -number) end
remember_completed(over, completed)
return answer
