-- fail: the consumer failed the attempt: the next wait of the retry array begins now.
-- KEYS   as in prelude.lua, with the sets of the job; then ends and schedules.
-- ARGV   as in act.lua, then due ms of the schedule and attempt that the consumer names ('' any),
--        generation and step that the caller read, '+' wait ms of that step ('' after the last one), last
--        error, code of the reason `failed`.
-- Answer failed | stale | waiting (no attempt is in flight) | dead (also, of a queue's job: dead by this
--        call; then without a due) | fired | not_found (also: never attempted, or a pop took
--        the job and hands it out later).
-- Errors as in act.lua, and 'DWELL_AGAIN id': the job has changed since the caller read it. Nothing was
--        written: read and call again.
-- Work   one job. First write ZREM.
-- A fail that names a schedule cannot apply to another one; one that also names an attempt, to no later
-- attempt.
local names_schedule, names_attempt = ARGV[4] ~= '', ARGV[4] ~= '' and ARGV[5] ~= ''
if not record then return answer_over(names_schedule) end
if dead or dying then return unchanged('dead', state.due, names_schedule) end
if state.attempt == 0 or is_held_early(state_bytes) then return unchanged('not_found') end
if ARGV[4] ~= '' and tonumber(ARGV[4]) ~= state.due then return unchanged('stale', state.due, true) end
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= state.attempt then return unchanged('stale', state.due, names_attempt) end
if waits then return unchanged('waiting', tonumber(waits), names_attempt) end
if ARGV[6] ~= state.generation or tonumber(ARGV[7]) ~= state.step then return redis.error_reply('DWELL_AGAIN ' .. id) end
local at = NOW
if ARGV[8] == '' then
  state.reason = tonumber(ARGV[10])
else
  state.step = state.step + 1
  at = time_of(ARGV[8])
end
state.flags, state.crashes, state.error, state.pop = 0, 0, ARGV[9], NO_POP
-- A job of a queue has no dead letter to publish first.
if state.reason ~= 0 and is_of_queue(record) then
  call('ZREM', HELD, id)
  call('HSET', STATE, id, write_state(state))
  enter(set_of(record))
  call('ZADD', dead_key, int(NOW), id)
  if is_held then count_unheld(record) end
  take_all_out(claimed)
  if #claimed > 0 then close_claims(ALL_CLAIMS) end
  return answer_applied('dead')
end
wait_until(at)
return answer_applied('failed', at)
