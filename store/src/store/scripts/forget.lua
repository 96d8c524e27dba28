-- forget: removes these queues from those that the bucket knows, where it has no job of them.
-- KEYS   as in prelude.lua, with due and dead of each queue.
-- ARGV   none.
-- Answer count of forgotten queues. A job in a lease brings its queue back when it is settled.
-- Work   three commands a queue; the caller bounds their number. First write HDEL.
local forgotten = 0
for set, key in pairs(DUE) do
  if call('HGET', QUEUES, set) == '0' and call('ZCARD', key) == 0 and call('ZCARD', dead_of(set)) == 0 then
    call('HDEL', QUEUES, set)
    forgotten = forgotten + 1
  end
end
return forgotten
