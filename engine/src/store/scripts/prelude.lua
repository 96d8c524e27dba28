-- Shared definitions: the keys by name, Redis's clock, and the layout of record prefix, state, gone
-- and acts. scripts/needed.rs puts those that a script needs in front of it; each definition begins
-- with `local` at the start of a line.
-- KEYS: run jobs state gone gone_old acts acts_old dead, then due:<broker> of each broker that the
--       script may change.
local RUN, JOBS, STATE, GONE, GONE_OLD, ACTS, ACTS_OLD, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local call = redis.call
local byte, sub = string.byte, string.sub

-- The only clock, us and ms. It stands still while the script runs.
local TIME = call('TIME')
local NOW_US = TIME[1] * 1000000 + TIME[2]
local NOW = math.floor(NOW_US / 1000)
-- Whether the caller has given up this call: another call may have done the work since.
local function is_late(deadline_us) return deadline_us and NOW_US > deadline_us end
local function late() return redis.error_reply(string.format('DWELL_LATE %.0f', NOW_US)) end
-- The time this many ms from now, rounded up to a whole ms, so that no delay ends early.
local function after(ms) return ms > 0 and math.ceil(NOW_US / 1000) + ms or NOW end

-- Runs a command with a list of arguments. Batches (<= 128 jobs) stay below the limit of unpack.
local function many(command, key, list)
  if #list > 0 then return call(command, key, unpack(list)) end
end

-- A claim also takes jobs that are due within this many ms (lease.rs).
local CLAIM_AHEAD = 5

local function int(number) return string.format('%.0f', number) end
-- The same, over 64 bytes long. A value of this length makes Redis store the hash as a table. In a
-- listpack, each access would search all fields: those of a batch of 128, and up to 512 in gone.
local function wide(number) return string.format('%066.0f', number) end
-- '+' ms from now, or '<' epoch ms, space, ms from now: the earlier of the two.
local function relative_time(text)
  local at, span = string.match(text, '^<(%-?%d+) (%d+)$')
  if at then return math.min(tonumber(at), after(tonumber(span))) end
  return after(tonumber(string.sub(text, 2)))
end

-- The key due:<broker> by the broker's name.
local DUE = {}
for i = 9, #KEYS do
  local broker = string.match(KEYS[i], '}:due:(.*)$')
  if broker then DUE[broker] = KEYS[i] end
end

-- Record prefix (store/record.rs): version, flags, ttr(4), generation(8), fingerprint(8), digest(8),
-- length of broker, broker.
local RECORD_VERSION = 1
local FLAG_GENERATED, FLAG_REPLACED, FLAG_FIRST = 2, 4, 8
local function has(flags, bit) return math.floor(flags / bit) % 2 == 1 end
-- A prefix has 31 bytes and the broker. Anything shorter is not a record.
local function is_known(record) return #record > 31 and byte(record, 1) == RECORD_VERSION end
-- Whether the broker has a valid name. No key contains any other name.
local function names_broker(record) return string.find(sub(record, 32, 31 + byte(record, 31)), '^[%l%d_%-]+$') end
local function generation_of(record) return string.sub(record, 7, 14) end
local function fingerprint_of(record) return string.sub(record, 15, 22) end
local function digest_of(record) return string.sub(record, 23, 30) end
local function broker_of(record) return sub(record, 32, 31 + byte(record, 31)) end
local function schedule_verdict_of(record) return has(string.byte(record, 2), FLAG_REPLACED) and 'replaced' or 'added' end

-- State (store/record.rs): the mutable part of a job. Only claimed or changed jobs have one.
local STATE_VERSION, STATE_FIXED, STATE_BYTES = 1, '>BBBI4I2i8c8c8c8BB', 43
local STATE_FIRST = '>BBBI4I2i8c8c16BB'
local HELD, TAKEN_OVER = 1, 2
-- Marks. REPLACED: the job replaced another one. DOUBT: a lost master may have seen further attempts.
-- FIRST: only the generation identifies the call that scheduled the job.
local REPLACED, DOUBT, FIRST = 1, 2, 4
local function marks_of(record)
  local flags = byte(record, 2)
  return (has(flags, FLAG_REPLACED) and REPLACED or 0) + (has(flags, FLAG_FIRST) and FIRST or 0)
end
local NO_FENCE = string.rep('\0', 8)
local function new_state(record, due)
  return { flags = 0, crashes = 0, attempt = 0, step = 0, due = due, fence = NO_FENCE, generation = generation_of(record),
           fingerprint = fingerprint_of(record), marks = marks_of(record), reason = 0, error = '' }
end
local function read_state(bytes)
  local s, version, at = {}, nil, nil
  version, s.flags, s.crashes, s.attempt, s.step, s.due, s.fence, s.generation, s.fingerprint, s.marks, s.reason, at = struct.unpack(STATE_FIXED, bytes)
  s.error = string.sub(bytes, at)
  return s
end
local function write_state(s)
  return struct.pack(STATE_FIXED, STATE_VERSION, s.flags, s.crashes, s.attempt, s.step, s.due, s.fence, s.generation, s.fingerprint, s.marks, s.reason) .. s.error
end
-- The state of a first claim, packed without parsing: generation and fingerprint are adjacent in the
-- record, too. Few strings, because creating strings takes a quarter of a claim's time.
local function first_state(record, due, fence)
  return struct.pack(STATE_FIRST, STATE_VERSION, 0, 0, 1, 0, due, fence, sub(record, 7, 22), marks_of(record), 0)
end
-- When a released job is due again. Without an attempt it is never due before its requested time,
-- whatever the clock of this master.
local function again_at(state, at) return state.attempt == 0 and math.max(at, state.due) or at end
local function fence_of(bytes) return sub(bytes, 18, 25) end
-- Detects a truncated state, too: parsing it would fail the script, and with it all jobs of the call.
local function is_readable(bytes) return not bytes or byte(bytes, 1) == STATE_VERSION and #bytes >= STATE_BYTES end

-- gone: id -> outcome, then marks, fingerprint, due and generation as in the state (older versions
-- write no generation). acts: fingerprint, or generation of a FIRST -> verdict:due. Field '' holds the
-- start of the turn; in the older tables, its end.
local function gone_entry(outcome, bytes) return outcome .. sub(bytes, 42, 42) .. sub(bytes, 34, 41) .. sub(bytes, 10, 17) .. sub(bytes, 26, 33) end
local GONE_BYTES = 18
local function gone_outcome(entry) return string.sub(entry, 1, 1) end
local function gone_fingerprint(entry) return string.sub(entry, 3, 10) end
local function gone_verdict(entry) return has(string.byte(entry, 2), REPLACED) and 'replaced' or 'added' end
local function gone_due(entry) return (struct.unpack('>i8', entry, 11)) end
local function gone_generation(entry) return sub(entry, 19, 26) end
local function act_entry(verdict, due) return verdict .. ':' .. (due and int(due) or '') end
local function read_act(entry) local verdict, due = string.match(entry, '^(.*):(%-?%d*)$'); return verdict, due end

-- Appends one to three items to a flat list.
local function push(list, first, second, third)
  local last = #list
  list[last + 1] = first
  if second ~= nil then list[last + 2] = second end
  if third ~= nil then list[last + 3] = third end
end

-- Entries of acts for a schedule: its verdict by fingerprint, and by generation if FIRST is set.
local function push_generation(list, record, due)
  if has(byte(record, 2), FLAG_FIRST) then push(list, generation_of(record), act_entry(schedule_verdict_of(record), due)) end
  return list
end
local function push_schedule(list, record, due)
  push(list, fingerprint_of(record), act_entry(schedule_verdict_of(record), due))
  return push_generation(list, record, due)
end
local function push_over(list, entry)
  local act = act_entry(gone_verdict(entry), gone_due(entry))
  push(list, gone_fingerprint(entry), act)
  if has(byte(entry, 2), FIRST) and #entry >= 26 then push(list, gone_generation(entry), act) end
  return list
end

-- A turn: the newer table becomes the older, and the older is removed. The last write of a script,
-- because a failed script is not rolled back. While a slot migrates, its master refuses every missing
-- key, such as `older` between UNLINK and RENAME: the turn then waits for the end of the migration.
-- UNLINK first, because a RENAME over a large table would block Redis for tens of ms.
local function turn(newer, older)
  local answer = redis.pcall('EXISTS', older .. ':never')
  if type(answer) == 'table' then return end
  call('UNLINK', older)
  call('RENAME', newer, older)
  call('HSET', older, '', wide(NOW))
end
local GONE_MAX = 4096
local function remember_gone(list)
  if #list == 0 then return end
  call('HSETNX', GONE, '', wide(NOW))
  many('HSET', GONE, list)
  if call('HLEN', GONE) > GONE_MAX then turn(GONE, GONE_OLD) end
end
local ACTS_MAX = 65536
-- Allocates memory: as the first write, a full Redis refuses it.
local function begin_acts() call('HSETNX', ACTS, '', wide(NOW)) end
local function remember_acts(list)
  if #list == 0 then return end
  begin_acts()
  many('HSET', ACTS, list)
end
local function turn_acts()
  if call('HLEN', ACTS) > ACTS_MAX then turn(ACTS, ACTS_OLD) end
end

-- A write without effect, for a repeated verdict. WAIT and WAITAOF cover only writes of their own
-- connection: without a write they would pass an answer that only this server knows. The first command
-- frees memory, so that a full Redis accepts the write.
local function touch()
  call('HDEL', ACTS, '-')
  call('HSET', ACTS, '-', '')
  call('HDEL', ACTS, '-')
end

-- Field '' of state: the run id of the last known master of the bucket, and the time of its last change
-- (0: never). A failover may lose a claim although its message was published. Returns the time of the
-- change, and 1 if this call found it. For an empty bucket without a known master (is_new) the first
-- master is not a change.
local function see_master(is_new)
  local run_id = string.match(call('INFO', 'server'), 'run_id:(%w+)') or ''
  local known, changed = string.match(call('HGET', STATE, '') or '', '^(%w*):(%d+)$')
  if known == run_id then return tonumber(changed), 0 end
  local fresh = is_new and not known
  changed = fresh and 0 or NOW
  call('HDEL', STATE, '')
  call('HSET', STATE, '', run_id .. ':' .. wide(changed))
  return changed, fresh and 0 or 1
end

-- Skips the unreadable ids at the head of a set: an earlier call found `count` of them, the `last` one
-- with this score. Returns how many of them are still there, and the score and offset after them. Some
-- may have left. If there are more than `count`, one was not checked yet; if `last` has another score,
-- others may have moved too: then nothing is skipped.
local function behind_unread(key, count, last, score)
  if count > 0 and call('ZSCORE', key, last) == score then
    local before = call('ZCOUNT', key, '-inf', '(' .. score)
    local same = before < count and call('ZRANGEBYSCORE', key, score, score, 'LIMIT', 0, count - before) or {}
    for at = #same, 1, -1 do
      if same[at] == last then return before + at, score, at end
    end
  end
  return 0, '-inf', 0
end

-- The ids and states of a settle call. From ARGV[first] on, every `width` arguments begin with id and
-- fence. A state is nil if the lease is lost.
local function leased(first, width)
  local ids = {}
  for i = first, #ARGV, width do ids[#ids + 1] = ARGV[i] end
  local states = many('HMGET', STATE, ids) or {}
  for i = 1, #ids do
    local bytes = states[i]
    local fence = ARGV[first + (i - 1) * width + 1]
    states[i] = bytes and fence_of(bytes) == fence and is_readable(bytes) and read_state(bytes) or nil
  end
  return ids, states
end
