-- bury: moves dead jobs to dead, where they stay for their retention.
-- KEYS   as in prelude.lua, no due.
-- ARGV, answer and work as in settle.lua; time: now.
return settle_to(DEAD)
