-- hasten: has jobs of a broker that went back to due for want of a place be due now, as long as they wait as they were
--         sent back: their states have the turns that were written then, which each change of a job removes.
-- KEYS   state and due of the broker, of one bucket.
-- ARGV   per job two: id, turn (8 bytes)
-- Answer count of jobs that are due now
-- Work   <= 128 jobs. First write ZREM: a full Redis accepts the call.
local STATE, DUE = KEYS[1], KEYS[2]
local call = redis.call
local time = call('TIME')
local now, count = math.floor(time[1] * 1000 + time[2] / 1000), 0
call('ZREM', DUE, '')
for i = 1, #ARGV, 2 do
  local state, due = call('HGET', STATE, ARGV[i]), call('ZSCORE', DUE, ARGV[i])
  if state and due and #state >= 43 and string.sub(state, 18, 25) == ARGV[i + 1]
    and tonumber(due) > now and struct.unpack('>i8', state, 10) <= now then
    call('ZADD', DUE, string.format('%.0f', now), ARGV[i])
    count = count + 1
  end
end
return count
