-- cancel: removes the job, whatever its state.
-- KEYS   as in prelude.lua, with the sets of the job; then ends and schedules.
-- ARGV   as in act.lua.
-- Answer cancelled (never published, and will not be) | cancelled_after_attempt | in_flight (cancelled
--        too; the attempt in flight may arrive) | fired | not_found.
-- Work   one job. First write ZREM.
if not record then return answer_over() end
local verdict = 'cancelled_after_attempt'
-- A job that a pop took early reaches its consumer at its due time.
if runs and (state.flags ~= FLAG_HELD or is_held_early(state_bytes)) then
  verdict = 'in_flight'
elseif waits and state.attempt == 0 and not dying then
  verdict = is_doubtful() and 'cancelled_after_attempt' or 'cancelled'
end
leave()
return answer_applied(verdict, state.due, push_schedule({}, record, state.due))
