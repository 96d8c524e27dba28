-- requeue: moves a dead job to due, now: a new schedule, with attempts from 1.
-- KEYS   as in prelude.lua, with the sets of the job; then ends and schedules.
-- ARGV   as in act.lua, then generation (8 random bytes).
-- Answer requeued | waiting (the job is not dead: nothing changed) | fired | not_found.
-- Work   one job. First write HSETNX: a full Redis refuses it.
if not record then return answer_over() end
if not dead then return unchanged('waiting', tonumber(waits or state.due)) end
begin_applied()
state = new_state(record, NOW)
state.generation = ARGV[4]
begin_expiry(id, record, state, NOW)
wait_until(NOW)
return answer_applied('requeued', NOW, push_generation({}, record, NOW))
