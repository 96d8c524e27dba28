-- fsck_counts: shows the counts of held jobs of queues and the held jobs at one instant, and sets counts.
-- KEYS   as in prelude.lua, with due and dead of the queues that are shown.
-- ARGV   three per queue: `=` and queue, its count as seen, the right count ('' to show it only).
-- Answer { per queue: its count before ('' none), 1 if jobs of it wait or are dead, then the ids of all held jobs }. A count is set if it
--        was as seen: jobs that moved meanwhile have changed the right one too.
-- Work   all ids of held. First write HDEL.
local answer = {}
for i = 1, #ARGV, 3 do
  local count = call('HGET', QUEUES, ARGV[i]) or ''
  local due_key = DUE[ARGV[i]]
  push(answer, count, due_key and call('ZCARD', due_key) + call('ZCARD', dead_of(ARGV[i])) > 0 and 1 or 0)
  if ARGV[i + 2] ~= '' and count == ARGV[i + 1] then
    call('HDEL', APPLIED, '-')
    call('HSET', QUEUES, ARGV[i], ARGV[i + 2])
  end
end
for _, id in ipairs(call('ZRANGE', HELD, 0, -1)) do push(answer, id) end
return answer
