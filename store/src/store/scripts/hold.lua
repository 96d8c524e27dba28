-- hold: the broker confirmed: the job waits in held until the consumer finishes it, at most for the TTR
--       from now.
-- KEYS   as in prelude.lua, no due.
-- ARGV, answer and work as in settle.lua; time: the TTR.
return settle_to(HELD)
