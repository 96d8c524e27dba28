-- fsck_counts: shows the counts of held jobs of queues and the held jobs at one instant, and sets counts.
-- KEYS   as in prelude.lua, without a set.
-- ARGV   three per queue: `=` and queue, its count as seen, the right count ('' to show it only).
-- Answer { per queue: its count before ('' none), then the ids of all held jobs }. A count is set if it
--        was as seen: jobs that moved meanwhile have changed the right one too.
-- Work   all ids of held. First write HDEL.
local answer = {}
for i = 1, #ARGV, 3 do
  local count = call('HGET', QUEUES, ARGV[i]) or ''
  push(answer, count)
  if ARGV[i + 2] ~= '' and count == ARGV[i + 1] then
    call('HDEL', ACTS, '-')
    call('HSET', QUEUES, ARGV[i], ARGV[i + 2])
  end
end
for _, id in ipairs(call('ZRANGE', HELD, 0, -1)) do push(answer, id) end
return answer
