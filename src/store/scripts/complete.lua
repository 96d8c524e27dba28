-- complete: the broker confirmed: the job is over and leaves Redis; its outcome stays in gone.
-- KEYS   as in prelude.lua, no due.
-- ARGV   outcome ('f' fired, 'd' dropped as too late), then two a job: id, fence.
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs; a constant number of commands. First write ZREM.
local ids, states = leased(2, 2)
local done, over, answer = {}, {}, {}
for i, id in ipairs(ids) do
  if states[i] then
    push(done, id)
    push(over, id, gone_entry(ARGV[1], states[i]))
  end
  answer[i] = states[i] and 'done' or 'lease_lost'
end
many('ZREM', RUN, done)
many('HDEL', JOBS, done)
many('HDEL', STATE, done)
remember_gone(over)
return answer
