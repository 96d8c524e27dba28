-- complete: the broker confirmed: the job is over and leaves Redis; its outcome stays in gone.
-- KEYS   as in prelude.lua, no due.
-- ARGV   outcome ('f' fired, 'd' dropped as too late), then two a job: id, fence.
-- Answer per job: done | lease_lost | taken_over (nothing changed; taken over: somebody else holds it, or made it fire, so that it may have landed twice;
--        else it was replaced, cancelled, finished or failed meanwhile, and its one attempt landed).
-- Work   <= 128 jobs; a constant number of commands. First write ZREM.
local outcome, ids = ARGV[1], {}
for i = 2, #ARGV, 2 do ids[i / 2] = ARGV[i] end
local states = many('HMGET', STATE, ids) or {}
local done, over, answer, count = {}, {}, {}, 0
for i, id in ipairs(ids) do
  local bytes = states[i]
  if bytes and fence_of(bytes) == ARGV[2 * i + 1] and is_readable(bytes) then
    count = count + 1
    done[count], over[2 * count - 1], over[2 * count] = id, id, gone_entry(outcome, bytes)
    answer[i] = 'done'
  else
    local holder = bytes and fence_of(bytes)
    local entry = not bytes and (call('HGET', GONE, id) or call('HGET', GONE_OLD, id))
    local is_taken_over = holder and holder ~= NO_FENCE or entry and gone_outcome(entry) == 'f' and call('HEXISTS', JOBS, id) == 0
    answer[i] = is_taken_over and 'taken_over' or 'lease_lost'
  end
end
many('ZREM', RUN, done)
many('HDEL', JOBS, done)
many('HDEL', STATE, done)
remember_gone(over)
return answer
