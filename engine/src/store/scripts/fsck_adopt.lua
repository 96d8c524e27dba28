-- fsck_adopt: takes a job in that stood in a bucket that is not its own, as it stood there; once, however often it is called.
-- KEYS   as in prelude.lua, with the due of every broker in meta, then quarantine.
-- ARGV   id, record, state ('' none), the set that it stood in ('run', 'dead', 'due:<broker>', '-' none), score there, field of quarantine that says
--        that it was taken in: the caller removes it after what it took the job from.
-- Answer done | taken (another job has this id: nothing changed).
-- Work   one job. First write HSET.
local id, record, state, place, score, mark = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local QUARANTINE = KEYS[#KEYS]
-- Taken in before: it may be over by now.
if call('HEXISTS', QUARANTINE, mark) == 1 then return 'done' end
if call('HEXISTS', JOBS, id) == 1 then return 'taken' end
call('HSET', QUARANTINE, mark, '1 taken_in - - 0 0\n')
call('HSET', JOBS, id, record)
if state ~= '' then call('HSET', STATE, id, state) else call('HDEL', STATE, id) end
local key = place == 'run' and RUN or place == 'dead' and DEAD or DUE[string.match(place, '^due:(.*)$')]
if key then call('ZADD', key, score, id) end
return 'done'
