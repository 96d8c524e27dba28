-- finish: the consumer has it: the job is over, wherever it waits.
-- KEYS   as in prelude.lua, with the due of every broker in meta.
-- ARGV   as in act.lua, then the due ms of the schedule that the consumer speaks of ('' any).
-- Answer finished | stale (another schedule stands) | fired | not_found (also: never attempted).
-- Work   one job. First write ZREM.
if not record then return answer_over() end
if state.attempt == 0 then return answer('not_found') end
if ARGV[4] ~= '' and tonumber(ARGV[4]) ~= state.due then return answer('stale', state.due) end
leave()
remember_gone({ id, gone_entry('n', state_bytes) })
return answer('finished', state.due)
