-- Follows the prelude of every script except upgrade and those of fsck. A failed script is not rolled
-- back: with a key of the wrong type, a job could be in a lease and stay in `due`, or be published and
-- never settled. Such a key fails the call here, before anything is written.
call('HLEN', JOBS)
call('HLEN', STATE)
call('HLEN', GONE)
call('HLEN', GONE_OLD)
call('HLEN', ACTS)
call('HLEN', ACTS_OLD)
call('ZCARD', DEAD)
call('HLEN', LEASES)
local LEASE_COUNT = call('HLEN', LEFT)
call('ZCARD', LENT)
call('ZCARD', HELD)
call('HLEN', QUEUES)
for i = FIRST_DUE, #KEYS do call(string.find(KEYS[i], '}:pops', 1, true) and 'HLEN' or 'ZCARD', KEYS[i]) end
