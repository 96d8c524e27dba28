-- release: nothing was published, or the owner crashed: back to due, at now + pause, with the step of
--          the retry array kept. A job without an attempt is never due before its due time.
-- KEYS   as in prelude.lua, with the due of the jobs' broker.
-- ARGV, answer and work as in settle.lua; time: the pause.
return settle_to(KEYS[FIRST_DUE])
