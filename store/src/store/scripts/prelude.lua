-- Shared definitions: the keys by name, Redis's clock, and the layout of record prefix, state, completed
-- and applied. scripts/prelude_parts.rs puts those that a script needs in front of it, or those that only one of its
-- blocks needs into this block, at the line PRELUDE; each definition begins with `local` at the start of a line.
-- KEYS: claim_deadlines jobs state completed completed_old applied applied_old dead claims settled held
--       queues, then due:<broker> of each broker, and due:=<queue> and dead:=<queue> of each queue, that the script may change.
--       Behind them: the keys of pops, or of recurring schedules, of the scripts that use them.
local CLAIM_DEADLINES, JOBS, STATE, COMPLETED, COMPLETED_OLD, APPLIED, APPLIED_OLD, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local CLAIMS, SETTLED, HELD, QUEUES = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local FIRST_DUE = 13
local call = redis.call
local byte, sub, floor = string.byte, string.sub, math.floor

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

-- A claim or a pop also takes jobs that are due within this many ms (claim.rs).
local CLAIM_AHEAD = 5

local function int(number) return string.format('%.0f', number) end
-- The same number, over 64 bytes long. A value of this length makes Redis store the hash as a table. In a
-- listpack, each access would search all fields: up to 128 of a batch, and up to 512 in completed.
local function wide(number) return string.format('%066.0f', number) end
-- A time (store/call/time.rs): '=' epoch ms; '+' ms from now; epoch ms, space, ms from now, after '<':
-- the earlier of the two, or after '>': the later.
local function time_of(time)
  if sub(time, 1, 1) == '=' then return tonumber(sub(time, 2)) end
  local which, at, span = string.match(time, '^([<>])(%-?%d+) (%d+)$')
  if which == '<' then return math.min(tonumber(at), after(tonumber(span))) end
  if which == '>' then return math.max(tonumber(at), after(tonumber(span))) end
  return after(tonumber(sub(time, 2)))
end

-- The keys due:<set> and dead:<set> by the set: a broker, or '=' and a queue. The dead jobs of all
-- brokers are in one set. All keys begin as `jobs` does.
local SET_KIND = #JOBS - 3
local DUE = {}
for i = FIRST_DUE, #KEYS do
  if sub(KEYS[i], SET_KIND, SET_KIND + 3) == 'due:' then DUE[sub(KEYS[i], SET_KIND + 4)] = KEYS[i] end
end
local DEAD_OF = {}
for i = FIRST_DUE, #KEYS do
  if sub(KEYS[i], SET_KIND, SET_KIND + 4) == 'dead:' then DEAD_OF[sub(KEYS[i], SET_KIND + 5)] = KEYS[i] end
end
local function dead_of(set) return DEAD_OF[set] or DEAD end

-- Record prefix (store/record.rs): version, flags, ttr(4), generation(8), fingerprint(8), digest(8),
-- length of owner, owner: a broker, or a queue in a record of the second version.
local RECORD_VERSION, QUEUE_VERSION = 1, 2
local FLAG_GENERATED, FLAG_REPLACED, FLAG_CALL_ID = 2, 4, 8
-- 16: the job has the default retry array; the scripts do not ask.
-- The bits from here hold the step below which a job of a queue is due again at once after a time-out
-- (time_out.lua); 0: the metadata has the next step.
local FLAG_GOES_ON = 32
local function has(flags, bit) return floor(flags / bit) % 2 == 1 end
local function is_version(byte) return byte == RECORD_VERSION or byte == QUEUE_VERSION end
-- A prefix has 31 bytes and the owner. Anything shorter is not a record.
local function is_known(record) return #record > 31 and is_version(byte(record, 1)) end
local function is_of_queue(record) return byte(record, 1) == QUEUE_VERSION end
-- Whether the owner has a valid name. No key contains any other name.
local function names_owner(record)
  return string.find(sub(record, 32, 31 + byte(record, 31)), is_of_queue(record) and '^[%w._%-]+$' or '^[%l%d_%-]+$')
end
local function generation_of(record) return string.sub(record, 7, 14) end
local function fingerprint_of(record) return string.sub(record, 15, 22) end
local function digest_of(record) return string.sub(record, 23, 30) end
local function set_of(record)
  local owner = sub(record, 32, 31 + byte(record, 31))
  return is_of_queue(record) and '=' .. owner or owner
end
-- Whether these are the sets of a queue of the caller. queues: names, and patterns in which '*' is any
-- characters, with spaces between them. A broker is no queue.
local function fits(name, pattern)
  local first = string.find(pattern, '*', 1, true)
  if not first then return name == pattern end
  if sub(name, 1, first - 1) ~= sub(pattern, 1, first - 1) then return false end
  local at = first
  while true do
    local star = string.find(pattern, '*', first + 1, true)
    local part = sub(pattern, first + 1, star and star - 1)
    if not star then return #name - #part + 1 >= at and sub(name, #name - #part + 1) == part end
    local _, last = string.find(name, part, at, true)
    if not last then return false end
    at, first = last + 1, star
  end
end
local function is_own(set, queues)
  for pattern in string.gmatch(queues, '%S+') do
    if sub(set, 1, 1) == '=' and fits(sub(set, 2), pattern) then return true end
  end
  return false
end
local function schedule_verdict_of(record) return has(string.byte(record, 2), FLAG_REPLACED) and 'replaced' or 'added' end

-- The records of recurring schedules, the last of KEYS of the scripts that ask whether an id is a schedule's.
local SCHEDULES = sub(KEYS[#KEYS], -11) == '}:schedules' and KEYS[#KEYS]
-- The index of jobs that have an end or an expiry: zset id -> when to look at the job (jobs/ends.rs), the key
-- before.
local ENDS = SCHEDULES and KEYS[#KEYS - 1]
-- The record of the job of each occurrence in the record of a schedule (store/schedules/codec.rs): it follows
-- version, digest(16), length of the timing (4) and the timing.
local function occurrence_record(bytes)
  return #bytes > 21 and byte(bytes, 1) == 1 and sub(bytes, 22 + struct.unpack('>I4', bytes, 18)) or ''
end

-- State (store/record.rs): the mutable part of a job that was attempted or changed. The attempt of a
-- job in a claim is one more than its state counts, unless the state has a flag or a
-- reason: then it counts the attempt.
local STATE_VERSION, STATE_FIXED, STATE_BYTES = 1, '>BBBI4I2i8c8c8c8BB', 43
-- Flags. HELD: held for its consumer. COUNTED: fsck took the job out of a damaged claim, and counted the
-- attempt and its crash; the job is in the key held until the rescue.
local FLAG_HELD, FLAG_COUNTED = 1, 2
-- Marks. REPLACED: the job replaced another one. DOUBT: a lost master may have seen further attempts.
-- CALL_ID: only the generation identifies the call that stored the job. FAILED, RELEASED: the consumer
-- of the last pop ended its lease so. EARLY: the last pop took the job before its due time, at which the
-- process of the pop hands the job to the consumer. ANEW: a time(8) stands before the last error, from which
-- the expiry of the job counts.
local REPLACED, DOUBT, CALL_ID, FAILED, RELEASED, EARLY, ANEW = 1, 2, 4, 8, 16, 32, 64
local function marks_of(record)
  local flags = byte(record, 2)
  return (has(flags, FLAG_REPLACED) and REPLACED or 0) + (has(flags, FLAG_CALL_ID) and CALL_ID or 0)
end
-- queues: set of a queue -> the number of its held jobs; '!' and set -> '1' while the queue is paused. The
-- first field exists while a job of the queue is in due, dead or held of this bucket: the script that adds
-- the job writes the field, and forget.lua removes it. So the bucket itself knows its queues. The job is
-- written by then: a count that is damaged stays as it is, for fsck, and fails no script.
local function count_held(set, change)
  if change == 0 then return end
  local answer = redis.pcall('HINCRBY', QUEUES, set, change)
  local why = type(answer) == 'table' and answer.err
  if why and not (string.find(why, 'not an integer', 1, true) or string.find(why, 'overflow', 1, true)) then
    call('HINCRBY', QUEUES, set, change)
  end
end
-- Before a job goes into due or dead of this set.
local function enter(set)
  if byte(set, 1) == 61 then call('HSETNX', QUEUES, set, '0') end
end
-- Counts a job that is no longer held.
local function count_unheld(record)
  if is_of_queue(record) then count_held(set_of(record), -1) end
end

-- The nonce of the pop that handed the job out last; of a job of a broker its turn at a limited target
-- (policy/limit.rs), or zero.
local NO_POP = string.rep('\0', 8)
local function new_state(record, due)
  return { flags = 0, crashes = 0, attempt = 0, step = 0, due = due, generation = generation_of(record),
           fingerprint = fingerprint_of(record), marks = marks_of(record), reason = 0, error = '', pop = NO_POP }
end
local function read_state(bytes)
  local s, _, at = {}, nil, nil
  _, s.flags, s.crashes, s.attempt, s.step, s.due, s.pop, s.generation, s.fingerprint, s.marks, s.reason, at = struct.unpack(STATE_FIXED, bytes)
  if has(s.marks, ANEW) and #bytes >= STATE_BYTES + 8 then s.anew, at = struct.unpack('>i8', bytes, at) end
  s.error = string.sub(bytes, at)
  return s
end
local function pop_of(bytes) return sub(bytes, 18, 25) end
-- Whether this is the state of a job that a pop took before its due time, which is still to come: no
-- consumer has the job yet.
local function is_held_early(bytes)
  return bytes and byte(bytes, 2) == FLAG_HELD and has(byte(bytes, 42), EARLY) and struct.unpack('>i8', bytes, 10) > NOW
end
local function write_state(s)
  return struct.pack(STATE_FIXED, STATE_VERSION, s.flags, s.crashes, s.attempt, s.step, s.due, s.pop, s.generation, s.fingerprint, s.marks, s.reason) .. (s.anew and struct.pack('>i8', s.anew) or '') .. s.error
end
-- Whether a job may expire: its metadata has a field of this name (store/record/metadata.rs). A header of
-- such a name costs no more than a look in vain.
local function may_expire(record)
  local at = 32 + byte(record, 31)
  return #record >= at + 3
    and string.find(sub(record, at + 4, at + 3 + struct.unpack('>I4', record, at)), 'expire_', 1, true) ~= nil
end
-- An action begins the expiry of a job anew. The maintenance looks at the job at once.
local function begin_expiry(id, record, state, from)
  if not may_expire(record) then return end
  if not has(state.marks, ANEW) then state.marks = state.marks + ANEW end
  state.anew = from
  if ENDS then call('ZADD', ENDS, int(NOW), id) end
end
-- Counts the attempt of a job that was in a claim. A job on its way to the dead letters has no new attempt.
local function count_attempt(state)
  if state.flags == 0 and state.reason == 0 then state.attempt = state.attempt + 1 end
end
-- Detects a truncated state, too: parsing it would fail the script, and with it all jobs of the call.
local function is_readable(bytes) return not bytes or byte(bytes, 1) == STATE_VERSION and #bytes >= STATE_BYTES end

-- completed: id -> outcome, then marks, fingerprint, due and generation as in the state (older versions
-- write no generation), then '=' and the queue, if the job was of one. applied: fingerprint, or the
-- generation of a job with CALL_ID -> verdict:due. Field '' holds the start of the turn; in the older
-- tables, its end.
local function completed_entry(outcome, s, set)
  local owner = sub(set, 1, 1) == '=' and set or ''
  return outcome .. struct.pack('>Bc8i8c8', s.marks, s.fingerprint, s.due, s.generation) .. owner
end
-- The same entry from the bytes of a state.
local function completed_entry_of(outcome, bytes, set)
  local owner = sub(set, 1, 1) == '=' and set or ''
  return outcome .. sub(bytes, 42, 42) .. sub(bytes, 34, 41) .. sub(bytes, 10, 17) .. sub(bytes, 26, 33) .. owner
end
local COMPLETED_BYTES = 18
local function completed_outcome(entry) return string.sub(entry, 1, 1) end
local function completed_fingerprint(entry) return string.sub(entry, 3, 10) end
local function completed_verdict(entry) return has(string.byte(entry, 2), REPLACED) and 'replaced' or 'added' end
local function completed_due(entry) return (struct.unpack('>i8', entry, 11)) end
local function completed_generation(entry) return sub(entry, 19, 26) end
local function completed_owner(entry) return sub(entry, 27) end
local function applied_entry(verdict, due) return verdict .. ':' .. (due and int(due) or '') end
local function read_applied(entry) local verdict, due = string.match(entry, '^(.*):(%-?%d*)$'); return verdict, due end

-- Appends one to three items to a flat list.
local function push(list, first, second, third)
  local last = #list
  list[last + 1] = first
  if second ~= nil then list[last + 2] = second end
  if third ~= nil then list[last + 3] = third end
end

-- Entries of applied for a schedule: its verdict by fingerprint, and by generation if CALL_ID is set.
local function push_generation(list, record, due)
  if has(byte(record, 2), FLAG_CALL_ID) then push(list, generation_of(record), applied_entry(schedule_verdict_of(record), due)) end
  return list
end
local function push_schedule(list, record, due)
  push(list, fingerprint_of(record), applied_entry(schedule_verdict_of(record), due))
  return push_generation(list, record, due)
end
local function push_over(list, entry)
  local act = applied_entry(completed_verdict(entry), completed_due(entry))
  push(list, completed_fingerprint(entry), act)
  if has(byte(entry, 2), CALL_ID) and #entry >= 26 then push(list, completed_generation(entry), act) end
  return list
end

-- A turn: the newer table becomes the older, and the older is removed. The last write of a script,
-- because a failed script is not rolled back. While a slot migrates, its master refuses every missing
-- key, such as `older` between UNLINK and RENAME: the turn then waits for the end of the migration.
-- UNLINK first, because a RENAME over a large table would block Redis for tens of ms.
local function rotate(newer, older)
  local answer = redis.pcall('EXISTS', older .. ':never')
  if type(answer) == 'table' then return end
  call('UNLINK', older)
  call('RENAME', newer, older)
  call('HSET', older, '', wide(NOW))
end
-- A table of completed or applied with more entries turns before its time. scripts.rs writes the share of a
-- bucket here, and a few more, so that the newest million of all buckets are remembered.
local MEMORY_MAX = 1000000
-- count: of the entries before. An entry may replace one: the table is counted again before its turn.
local function remember_completed(list, count)
  if #list == 0 then return end
  if count == 0 then push(list, '', wide(NOW)) end
  call('HSET', COMPLETED, unpack(list))
  if count + #list / 2 > MEMORY_MAX and call('HLEN', COMPLETED) > MEMORY_MAX then rotate(COMPLETED, COMPLETED_OLD) end
end
-- Allocates memory: as the first write, a full Redis refuses it.
local function begin_applied() call('HSETNX', APPLIED, '', wide(NOW)) end
local function remember_applied(list)
  if #list == 0 then return end
  begin_applied()
  many('HSET', APPLIED, list)
end
local function rotate_applied()
  if call('HLEN', APPLIED) > MEMORY_MAX then rotate(APPLIED, APPLIED_OLD) end
end

-- A write without effect, for a repeated verdict. WAIT and WAITAOF cover only writes of their own
-- connection: without a write they would pass an answer that only this server knows. The first command
-- frees memory, so that a full Redis accepts the write.
local function touch()
  call('HDEL', APPLIED, '-')
  call('HSET', APPLIED, '-', '')
  call('HDEL', APPLIED, '-')
end

-- Field '' of state: the run id of the last known master of the bucket, and the time of its last change
-- (0: never). A failover may lose a claim although its message was published. Returns the time of the
-- change, and 1 if this call found it. For an empty bucket without a known master (is_new) the first
-- master is not a change. The run id of a promoted replica is followed by the replication id of the
-- master before it: a server that is the master again is another one. A master without replicas forgets
-- that id after a while (repl-backlog-ttl), which is no change.
local function see_master(is_new)
  local info = call('INFO', 'server', 'replication')
  local run_id, before = string.match(info, 'run_id:(%w+)') or '', string.match(info, 'master_replid2:(%w+)') or ''
  local was_promoted = string.find(before, '[^0]')
  if was_promoted then run_id = run_id .. before end
  local known, changed = string.match(call('HGET', STATE, '') or '', '^(%w*):(%d+)$')
  if known == run_id or known and not was_promoted and run_id ~= '' and sub(known, 1, #run_id) == run_id then
    return tonumber(changed), 0
  end
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

-- A claim has the jobs that one call of claim.lua or rescue.lua took, at positions from 0. claims: nonce -> per position
-- '\0' id '\1' due; settled: nonce -> created, then a bit per position, set once the job has left the claim
-- (bits after the last position are set); claim_deadlines: nonce -> deadline ms. `created`, the time of the first write
-- (us, 8 bytes), tells the claim from one that a late copy of the call makes under the same nonce.
-- When jobs leave a claim, `claim_deadlines`, `claims` and `settled` are written after the keys of the jobs, because
-- each may become empty: while a slot migrates, its master refuses a key that became empty.
local CREATED = struct.pack('>I8', NOW_US)
local function claim_entry(id, due) return '\0' .. id .. '\1' .. due end
local function write_claim(nonce, deadline, count, text)
  local bits, rest = string.rep('\0', floor(count / 8)), count % 8
  if rest > 0 then bits = bits .. string.char(256 - 2 ^ rest) end
  call('HSET', CLAIMS, nonce, table.concat(text))
  call('HSET', SETTLED, nonce, CREATED .. bits)
  call('ZADD', CLAIM_DEADLINES, int(deadline), nonce)
end
local function read_claim(nonce, settled) return { nonce = nonce, created = sub(settled, 1, 8), bits = { byte(settled, 9, -1) } } end
local BIT = { [0] = 1, 2, 4, 8, 16, 32, 64, 128 }
-- Whether the job at this position is still in the claim.
local function is_out(claim, position)
  local bits = claim.bits[floor(position / 8) + 1]
  return bits ~= nil and floor(bits / BIT[position % 8]) % 2 == 0
end
local function take_out(claim, position)
  local at = floor(position / 8) + 1
  claim.bits[at], claim.changed = claim.bits[at] + BIT[position % 8], true
end
-- Writes the bits of the jobs that left these claims. A claim without a job is removed.
local function close_claims(claims)
  local settled, over = {}, {}
  for _, claim in pairs(claims) do
    if claim.changed then
      local is_over = true
      for _, bits in ipairs(claim.bits) do is_over = is_over and bits == 255 end
      if is_over then push(over, claim.nonce) else push(settled, claim.nonce, claim.created .. string.char(unpack(claim.bits))) end
    end
  end
  many('HSET', SETTLED, settled)
  many('HDEL', CLAIMS, over)
  many('HDEL', SETTLED, over)
  many('ZREM', CLAIM_DEADLINES, over)
end
-- Every claim of the bucket with its text; read once a call.
local ALL_CLAIMS
local function all_claims()
  if not ALL_CLAIMS then
    ALL_CLAIMS = {}
    local settled = call('HGETALL', SETTLED)
    local by_nonce, texts = {}, #settled > 0 and call('HGETALL', CLAIMS) or {}
    for i = 1, #settled, 2 do by_nonce[settled[i]] = settled[i + 1] end
    for i = 1, #texts, 2 do
      if by_nonce[texts[i]] then
        local claim = read_claim(texts[i], by_nonce[texts[i]])
        claim.text = texts[i + 1]
        push(ALL_CLAIMS, claim)
      end
    end
  end
  return ALL_CLAIMS
end
-- The places of an id in claims: per claim that still has the id, the claim and the position; then the due of
-- the last one. All claims are searched: an older one may have it at a position that it has left.
local function find_claimed(id)
  local found, due, entry = {}, nil, '\0' .. id .. '\1'
  for _, claim in ipairs(all_claims()) do
    local start, last = string.find(claim.text, entry, 1, true)
    if start then
      local _, before = string.gsub(sub(claim.text, 1, start), '%z', '')
      if is_out(claim, before - 1) then
        push(found, { claim = claim, position = before - 1 })
        due = tonumber(string.match(claim.text, '^%-?%d+', last + 1) or nil)
      end
    end
  end
  return found, due
end
local function take_all_out(found)
  for _, one in ipairs(found) do take_out(one.claim, one.position) end
end
-- The answer of a claim or rescue that was carried out before: a repeat changes nothing.
local function answer_again(nonce, settled)
  local claim, text = read_claim(nonce, settled), call('HGET', CLAIMS, nonce) or ''
  local answer, position = { NOW_US, '', 1, 0, '', '', 0, claim.created }, 0
  for id, due in string.gmatch(text, '%z([^%z\1]*)\1([^%z\1]*)') do
    local record = is_out(claim, position) and call('HGET', JOBS, id)
    if record then
      push(answer, id, call('HGET', STATE, id) or '', record)
      push(answer, due)
    else
      push(answer, '', '', '')
      push(answer, '')
    end
    position = position + 1
  end
  return answer
end

-- pops: nonce -> the ids that this pop handed out, each after '\0'. A repeat of the pop finds them here.
-- An empty id begins the jobs of the next consumer that shares the pop.
-- Two hashes take turns, as completed does; the pops of the last 10 s are remembered, up to 64 POPS_MAX of them.
local POPS_MAX = 1024
local function remember_pop(pops, pops_old, nonce, text)
  -- The nonce is new.
  local count = call('HLEN', pops)
  if count == 0 then
    call('HSET', pops, '', wide(NOW), nonce, text)
  else
    call('HSET', pops, nonce, text)
  end
  if count >= POPS_MAX then
    local begun = tonumber(call('HGET', pops, '') or nil)
    -- A clock that went back, or stands still, must not keep them for ever.
    local is_far = begun and (begun > NOW or count >= 64 * POPS_MAX)
    if not begun or begun < NOW - 10000 or is_far then rotate(pops, pops_old) end
  end
end
local function popped(pops, pops_old, nonce) return call('HGET', pops, nonce) or call('HGET', pops_old, nonce) end
-- Whether this pop still has the job.
local function has_popped(id, nonce)
  local bytes = call('HGET', STATE, id)
  return bytes and is_readable(bytes) and byte(bytes, 2) == FLAG_HELD and pop_of(bytes) == nonce and bytes
end
