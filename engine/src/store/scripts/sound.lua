-- Behind the prelude of every script but fsck's. A script that fails is not rolled back: where one of its keys is of another type, a job that has left
-- `due` would never reach `run`, and one that was published could not be settled. Such a key fails the call here, before anything is written.
call('HLEN', JOBS)
call('HLEN', STATE)
call('HLEN', GONE)
call('HLEN', GONE_OLD)
call('HLEN', ACTS)
call('HLEN', ACTS_OLD)
call('ZCARD', RUN)
call('ZCARD', DEAD)
for i = 9, #KEYS do call('ZCARD', KEYS[i]) end
