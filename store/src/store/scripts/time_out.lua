-- time_out: held jobs of queues past their TTR are due again at once, at their next step, where the record
--           says that nothing else can follow (policy/lease.rs). All others stay held, for rescue.lua.
-- KEYS   as in prelude.lua, with due and dead of each queue that the caller knows of.
-- ARGV   limit of jobs, limit of bytes of records, waits of jobs without a retry array, the last error, epoch
--        ms (jobs whose TTR ended later stay; '' none).
-- Answer { now us, count of sets whose keys the caller did not give, those sets, then per queue with jobs
--        that are due again: its set and their number }. A repeat changes nothing: they are not held.
-- Work   looks at <= 512 jobs or about 1 MiB, 16 at a time, and names <= 64 sets. First write HDEL.
local most, most_bytes, why = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local SLICE, NAMED_MAX, STEP_MAX = 16, 64, 65535
-- The steps below which a job goes on, by the flags of its record.
local GOES_ON = { [0] = 0, 1, 2, 4, 8, 16, STEP_MAX, math.min(STEP_MAX, tonumber(ARGV[3])) }
-- By queue: the arguments of ZADD for its jobs that are due again, and their number; false for a queue
-- whose keys the caller did not give, or whose name is none.
local due, counts, left_out = {}, {}, {}
local function jobs_of(queue, record)
  local is_given = DUE['=' .. queue] ~= nil
  due[queue], counts[queue] = is_given and {}, 0
  if not is_given and #left_out < NAMED_MAX and names_owner(record) then push(left_out, '=' .. queue) end
end
-- Whether the record has all of its metadata.
local function is_whole(record)
  local at = 32 + byte(record, 31)
  return #record >= at + 3 and #record >= at + 3 + struct.unpack('>I4', record, at)
end
-- The bytes of the next step, by the step.
local NEXT = {}
local function next_step(step)
  NEXT[step] = struct.pack('>I2', step + 1)
  return NEXT[step]
end
local waited = call('ZRANGEBYSCORE', HELD, '-inf', math.min(NOW, tonumber(ARGV[5]) or NOW), 'LIMIT', 0, most)
-- Nobody can read a job whose record is damaged: its metadata is looked at once in so many steps.
local READ_EVERY = 16
local ids, states, count, now = {}, {}, 0, int(NOW)
local first, bytes, slice, largest = 1, 0, 4, 1
while first <= #waited and bytes < most_bytes do
  local last = math.min(#waited, first + slice - 1)
  local records, olds = call('HMGET', JOBS, unpack(waited, first, last)), call('HMGET', STATE, unpack(waited, first, last))
  for i = 1, last - first + 1 do
    local record, old = records[i] or '', olds[i] or ''
    bytes, largest = bytes + #record, math.max(largest, #record)
    if #record > 31 and #old >= STATE_BYTES then
      local version, flags = byte(record, 1, 2)
      local state_version, state_flags = byte(old, 1, 2)
      local high, low = byte(old, 8, 9)
      local step = 256 * high + low
      -- In the state of a pop or of a hold, without a mark of a death, and without a time before the last error.
      if version == QUEUE_VERSION and state_version == STATE_VERSION and state_flags == FLAG_HELD
        and byte(old, 42) < ANEW and byte(old, 43) == 0 and step < GOES_ON[floor(flags / FLAG_GOES_ON)] and step % READ_EVERY < READ_EVERY - 1
        and is_whole(record) then
        local queue = sub(record, 32, 31 + byte(record, 31))
        if due[queue] == nil then jobs_of(queue, record) end
        local members = due[queue]
        if members then
          local id, at = waited[first + i - 1], counts[queue]
          counts[queue] = at + 1
          members[2 * at + 1], members[2 * at + 2] = now, id
          states[2 * count + 1] = id
          states[2 * count + 2] = '\1\0\0' .. sub(old, 4, 7) .. (NEXT[step] or next_step(step)) .. sub(old, 10, 17)
            .. NO_POP .. sub(old, 26, 43) .. why
          count = count + 1
          ids[count] = id
        end
      end
    end
  end
  first = last + 1
  slice = math.max(1, math.min(4 * slice, SLICE, floor((most_bytes - bytes) / largest)))
end
local answer = { NOW_US, #left_out, unpack(left_out) }
if count > 0 then call('HDEL', APPLIED, '-') end
for queue, members in pairs(due) do
  if members then
    push(answer, '=' .. queue, counts[queue])
    enter('=' .. queue)
    many('ZADD', DUE['=' .. queue], members)
  end
end
many('HSET', STATE, states)
many('ZREM', HELD, ids)
for queue, members in pairs(due) do
  if members then count_held('=' .. queue, -counts[queue]) end
end
return answer
