-- finish: the consumer has done the job: removes it, whatever its state.
-- KEYS   as in prelude.lua, with the sets of the job; then ends and schedules.
-- ARGV   as in act.lua, then the due ms of the schedule that the consumer names ('' any).
-- Answer finished | stale (the job has another schedule) | fired | not_found (also: never attempted,
--        or a pop took the job and hands it out later).
-- Work   one job. First write ZREM.
-- A finish that names a schedule cannot apply to another one.
local names_schedule = ARGV[4] ~= ''
if not record then return answer_over(names_schedule) end
if state.attempt == 0 or is_held_early(state_bytes) then return unchanged('not_found') end
if names_schedule and tonumber(ARGV[4]) ~= state.due then return unchanged('stale', state.due, true) end
leave()
local told = answer_applied('finished', state.due)
remember_completed({ id, completed_entry('n', state, set_of(record)) }, COMPLETED_COUNT)
return told
