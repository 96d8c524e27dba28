-- reschedule: a new due time and a new schedule: the retry array starts again, and its copies are not
--        duplicates of earlier ones.
-- KEYS   as in prelude.lua, with the sets of the job; then ends and schedules.
-- ARGV   as in act.lua, then time ('=' epoch ms | '+' ms from now | '<' epoch ms, space, ms from now:
--        the earlier), generation (8 random bytes).
-- Answer rescheduled | in_flight (nothing changed) | dead (nothing changed) | fired | not_found.
-- Work   one job. First write HSETNX: a full Redis refuses it.
if not record then return answer_over() end
if dead or dying then return unchanged('dead', state.due) end
if runs then return unchanged('in_flight', state.due) end
local due = time_of(ARGV[4])
begin_applied()
if state.attempt == 0 and not has(state.marks, DOUBT) and is_doubtful() then state.marks = state.marks + DOUBT end
state.due, state.generation, state.step, state.crashes, state.pop = due, ARGV[5], 0, 0, NO_POP
begin_expiry(id, record, state, due)
wait_until(due)
return answer_applied('rescheduled', due, push_generation({}, record, due))
