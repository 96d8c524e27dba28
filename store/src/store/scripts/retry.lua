-- retry: the attempt failed: back to due at now + wait, step + 1; or due now, on its way to the dead
--        letters.
-- KEYS   as in prelude.lua, with the due of the jobs' broker.
-- ARGV, answer and work as in settle.lua; time: the wait.
return settle_to(KEYS[FIRST_DUE])
