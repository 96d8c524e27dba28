-- limit_back: gives the turns of a call of limit.lua back, whose jobs did not wait for the answer: where they are
--             the last of the line.
-- KEYS   the limits of the namespace.
-- ARGV   per limit three: field, until when turns were taken after the call, and before (epoch us).
-- Answer count of limits whose turns were given back
-- Work   one field a limit. First write HDEL: a full Redis accepts the call.
local LIMITS, count = KEYS[1], 0
local call = redis.call
call('HDEL', LIMITS, '')
for i = 1, #ARGV, 3 do
  local taken, rest = string.match(call('HGET', LIMITS, ARGV[i]) or '', '^(%d+)( .*)$')
  if taken == ARGV[i + 1] then
    call('HSET', LIMITS, ARGV[i], ARGV[i + 2] .. rest)
    count = count + 1
  end
end
return count
