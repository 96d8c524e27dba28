-- reclaim: the answer of a claim was lost: moves its jobs back to due, as they were.
-- KEYS   as in prelude.lua, with the due of the claim.
-- ARGV   nonce of the claim.
-- Answer count of moved jobs.
-- Work   <= 128 jobs. First write HDEL, so that a full Redis accepts the call.
local left = call('HGET', LEFT, ARGV[1])
if not left then return 0 end
local lease, back, position = read_lease(ARGV[1], left), {}, 0
for id, due in string.gmatch(call('HGET', LEASES, ARGV[1]) or '', '%z([^%z\1]*)\1([^%z\1]*)') do
  if is_out(lease, position) then
    take_out(lease, position)
    push(back, due, id)
  end
  position = position + 1
end
call('HDEL', ACTS, '-')
many('ZADD', KEYS[FIRST_DUE], back)
close_leases({ lease })
return #back / 2
