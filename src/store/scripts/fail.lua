-- fail: the consumer could not do it: the attempt has failed, the next step of the retry array begins now.
-- KEYS   as in prelude.lua, with the due of every broker in meta.
-- ARGV   as in act.lua, then due ms of the schedule and attempt that the consumer speaks of ('' any), generation and step that the caller
--        read, wait ms of that step ('' where the array is at its end), last error, code of the reason `failed`.
-- Answer failed | stale | waiting (no attempt is out) | dead | fired | not_found (also: never attempted).
-- Errors as in act.lua, and 'DWELL_AGAIN id': the job changed since the caller read it. Nothing was written: read and call again.
-- Work   one job. First write ZREM.
if not record then return answer_over() end
if dead or dying then return answer('dead', state.due) end
if state.attempt == 0 then return answer('not_found') end
if ARGV[4] ~= '' and tonumber(ARGV[4]) ~= state.due then return answer('stale', state.due) end
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= state.attempt then return answer('stale', state.due) end
if waits then return answer('waiting', tonumber(waits)) end
if ARGV[6] ~= state.generation or tonumber(ARGV[7]) ~= state.step then return redis.error_reply('DWELL_AGAIN ' .. id) end
local at = NOW
if ARGV[8] == '' then
  state.reason = tonumber(ARGV[10])
else
  state.step = state.step + 1
  at = after(tonumber(ARGV[8]))
end
state.fence, state.flags, state.crashes, state.error = NO_FENCE, 0, 0, ARGV[9]
wait_until(at)
return answer('failed', at)
