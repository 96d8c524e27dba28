-- fire: makes the job due now. The schedule stays the same; an attempted job keeps the due time that its
--       consumers know.
-- KEYS   as in prelude.lua, with the sets of the job; then ends and schedules.
-- ARGV   as in act.lua.
-- Answer firing | in_flight (nothing changed) | dead (nothing changed) | fired | not_found.
-- Work   one job. First write HSETNX: a full Redis refuses it.
if not record then return answer_over() end
if dead or dying then return unchanged('dead', state.due) end
if runs then return unchanged('in_flight', state.due) end
local at = math.min(NOW, tonumber(waits))
-- A job that was released without a publish waits beyond its due time.
if state.attempt == 0 then state.due = math.min(at, state.due) end
begin_applied()
begin_expiry(id, record, state, NOW)
wait_until(at)
return answer_applied('firing', state.attempt == 0 and state.due or at)
