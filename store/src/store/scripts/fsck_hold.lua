-- fsck_hold: ends a hold after its TTR, unless the job has changed.
-- KEYS   as in prelude.lua, with the due of the job's broker, or due and dead of its queue.
-- ARGV   id, its state as checked, '+' wait ms, the new state.
-- Answer 1 if the job is in due or dead now, else 0: nothing changed.
-- Work   one job. First write HDEL.
local id = ARGV[1]
if call('HGET', STATE, id) ~= ARGV[2] or not call('ZSCORE', HELD, id) then return 0 end
call('HDEL', APPLIED, '-')
local record = call('HGET', JOBS, id)
local is_queue = record and is_known(record) and is_of_queue(record)
if is_queue then enter(set_of(record)) end
if is_queue and byte(ARGV[4], 43) ~= 0 then
  -- No dead letter is published first.
  call('ZADD', KEYS[FIRST_DUE + 1], int(NOW), id)
else
  call('ZADD', KEYS[FIRST_DUE], int(time_of(ARGV[3])), id)
end
call('HSET', STATE, id, ARGV[4])
call('ZREM', HELD, id)
if is_queue then count_unheld(record) end
return 1
