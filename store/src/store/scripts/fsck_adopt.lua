-- fsck_adopt: adds a job from a wrong bucket to this bucket, unchanged; once, however often it is called.
-- KEYS   as in prelude.lua, with the sets of the job, then quarantine.
-- ARGV   id, record, state ('' none), the job's set ('held', 'claim', 'dead', 'due:<broker>', '-' none), its score
--        there, the quarantine field that marks the job as added: the caller removes this field after
--        the job's entry in the other quarantine.
-- Answer done | taken (another job has this id: nothing changed).
-- Work   one job. First write HSET.
local id, record, state, place, score, mark = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local QUARANTINE = KEYS[#KEYS]
-- The job was added by an earlier call; it may be completed by now.
if call('HEXISTS', QUARANTINE, mark) == 1 then return 'done' end
if call('HEXISTS', JOBS, id) == 1 then return 'taken' end
call('HSET', QUARANTINE, mark, '1 taken_in - - 0 0\n')
call('HSET', JOBS, id, record)
if state ~= '' then call('HSET', STATE, id, state) else call('HDEL', STATE, id) end
local key = (place == 'held' or place == 'claim') and HELD or place == 'dead' and dead_of(set_of(record)) or DUE[string.match(place, '^due:(.*)$')]
if key and is_known(record) then enter(set_of(record)) end
if key then call('ZADD', key, score, id) end
if key == HELD and is_known(record) and is_of_queue(record) then count_held(set_of(record), 1) end
return 'done'
