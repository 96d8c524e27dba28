-- fsck_hold: ends a hold after its TTR, unless the job has changed.
-- KEYS   as in prelude.lua, with the due of the job's broker.
-- ARGV   id, its state as checked, wait ms, the new state.
-- Answer 1 if the job is in due now, else 0: nothing changed.
-- Work   one job. First write HDEL.
local id = ARGV[1]
if call('HGET', STATE, id) ~= ARGV[2] or not call('ZSCORE', HELD, id) then return 0 end
call('HDEL', ACTS, '-')
call('ZADD', KEYS[FIRST_DUE], int(after(tonumber(ARGV[3]))), id)
call('HSET', STATE, id, ARGV[4])
call('ZREM', HELD, id)
return 1
