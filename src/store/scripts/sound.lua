-- Behind the prelude of every script but fsck's. A script that fails is not rolled back: where one of its keys is of another type, a job that has left
-- `due` would never reach `run`, and one that was published could not be settled. Such a key fails the call here, before anything is written.
for _, key in ipairs({ JOBS, STATE, GONE, GONE_OLD, ACTS, ACTS_OLD }) do call('HLEN', key) end
for _, key in ipairs({ RUN, DEAD }) do call('ZCARD', key) end
for i = 9, #KEYS do call('ZCARD', KEYS[i]) end
