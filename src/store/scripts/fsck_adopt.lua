-- fsck_adopt: takes a job in that stood in a bucket that is not its own, as it stood there.
-- KEYS   as in prelude.lua, with the due of every broker in meta.
-- ARGV   id, record, state ('' none), the set that it stood in ('run', 'dead', 'due:<broker>', '-' none), score there.
-- Answer done | taken (another job has this id: nothing changed).
-- Work   one job. First write HSET.
local id, record, state, place, score = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local there = call('HGET', JOBS, id)
-- This very call again.
if there == record then return 'done' end
if there then return 'taken' end
call('HSET', JOBS, id, record)
if state ~= '' then call('HSET', STATE, id, state) end
local key = place == 'run' and RUN or place == 'dead' and DEAD or DUE[string.match(place, '^due:(.*)$')]
if key then call('ZADD', key, score, id) end
return 'done'
