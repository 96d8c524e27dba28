-- Follows the prelude of every script except those of fsck. A failed script is not rolled back: with a
-- key of the wrong type, a job could leave `due` and not reach `run`, or be published and never settled.
-- Such a key fails the call here, before anything is written.
call('HLEN', JOBS)
call('HLEN', STATE)
call('HLEN', GONE)
call('HLEN', GONE_OLD)
call('HLEN', ACTS)
call('HLEN', ACTS_OLD)
call('ZCARD', RUN)
call('ZCARD', DEAD)
for i = 9, #KEYS do call('ZCARD', KEYS[i]) end
