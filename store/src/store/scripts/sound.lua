-- Follows the prelude of every script except schedule, pop, acknowledge and the scripts of fsck. A failed
-- script is not rolled back: with a key of the wrong type, a job could be in a claim and stay in `due`, or be
-- published and never settled. A key of the wrong type fails the call here, before anything is written.
-- A later schema can shut this version out by another type of `state`: those three read that too.
local JOB_COUNT, STATE_COUNT = call('HLEN', JOBS), call('HLEN', STATE)
local COMPLETED_COUNT, COMPLETED_OLD_COUNT = call('HLEN', COMPLETED), call('HLEN', COMPLETED_OLD)
local APPLIED_COUNT, APPLIED_OLD_COUNT = call('HLEN', APPLIED), call('HLEN', APPLIED_OLD)
call('ZCARD', DEAD)
call('HLEN', CLAIMS)
local CLAIM_COUNT = call('HLEN', SETTLED)
call('ZCARD', CLAIM_DEADLINES)
call('ZCARD', HELD)
call('HLEN', QUEUES)
-- scripts.rs puts the number of the keys behind the sets here. The script checks those that it writes itself;
-- the index of ends is written before the jobs that it is for, and only for these.
for i = FIRST_DUE, #KEYS - BEHIND do call('ZCARD', KEYS[i]) end
