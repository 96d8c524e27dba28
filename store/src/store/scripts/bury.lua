-- bury: moves dead jobs to dead, where they stay for their retention.
-- KEYS   as in prelude.lua, with due and dead of the jobs' queue, if they are of one.
-- ARGV, answer and work as in settle.lua; time: now.
return settle_to(KEYS[FIRST_DUE + 1] or DEAD)
