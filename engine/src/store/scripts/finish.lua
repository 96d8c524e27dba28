-- finish: the consumer has it: the job is over, wherever it waits.
-- KEYS   as in prelude.lua, with the due of every broker in meta.
-- ARGV   as in act.lua, then the due ms of the schedule that the consumer speaks of ('' any).
-- Answer finished | stale (another schedule stands) | fired | not_found (also: never attempted).
-- Work   one job. First write ZREM.
-- A word that names its schedule is for no other.
local names_schedule = ARGV[4] ~= ''
if not record then return answer_over(names_schedule) end
if state.attempt == 0 then return unchanged('not_found') end
if names_schedule and tonumber(ARGV[4]) ~= state.due then return unchanged('stale', state.due, true) end
leave()
local told = applied('finished', state.due)
remember_gone({ id, gone_entry('n', state_bytes) })
return told
