-- cancel: the job leaves Redis, wherever it is.
-- KEYS   as in prelude.lua, with the due of every broker in meta.
-- ARGV   as in act.lua.
-- Answer cancelled (no publish was made, none begins) | cancelled_after_attempt | in_flight (cancelled too; the attempt that is out may land)
--        | fired | not_found.
-- Work   one job. First write ZREM.
if not record then return answer_over() end
local verdict = 'cancelled_after_attempt'
if runs and state.flags ~= HELD then
  verdict = 'in_flight'
elseif waits and state.attempt == 0 and not dying then
  verdict = is_doubtful() and 'cancelled_after_attempt' or 'cancelled'
end
leave()
return applied(verdict, state.due, push_schedule({}, record, state.due))
