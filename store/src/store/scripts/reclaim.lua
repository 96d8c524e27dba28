-- reclaim: the answer of a claim was lost: moves its jobs back to due, as they were.
-- KEYS   as in prelude.lua, with the due of the claim.
-- ARGV   nonce of the claim.
-- Answer count of moved jobs.
-- Work   <= 128 jobs. First write HDEL, so that a full Redis accepts the call.
local settled = call('HGET', SETTLED, ARGV[1])
if not settled then return 0 end
local claim, back, position = read_claim(ARGV[1], settled), {}, 0
for id, due in string.gmatch(call('HGET', CLAIMS, ARGV[1]) or '', '%z([^%z\1]*)\1([^%z\1]*)') do
  if is_out(claim, position) then
    take_out(claim, position)
    push(back, due, id)
  end
  position = position + 1
end
call('HDEL', APPLIED, '-')
many('ZADD', KEYS[FIRST_DUE], back)
close_claims({ claim })
return #back / 2
