-- limit_now: takes the turns of one limit that are there now, up to so many; or gives turns back. Its field is as
--            in limit.lua, but nothing is taken ahead, and jobs wait since the time in it only if that is not 0.
-- KEYS   the limits of the namespace.
-- ARGV   field, turns (negative: these are given back), rule: turns, the us that they take, burst.
-- Answer { turns that were taken, us until the next turn }
-- Work   one field, and all of them in one of 64 calls when they are many. First write HDEL: a full Redis accepts the call.
local LIMITS, MANY, field, asked, rule = KEYS[1], 1000, ARGV[1], tonumber(ARGV[2]), ARGV[3]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local count, per, burst = string.match(rule, '^(%d+)/(%d+)/(%d+)$')
count, per, burst = tonumber(count), tonumber(per), tonumber(burst)
call('HDEL', LIMITS, '')
if now % 64 == 0 and call('HLEN', LIMITS) > MANY then
  local fields = call('HGETALL', LIMITS)
  for i = 1, #fields, 2 do
    local taken = tonumber(string.match(fields[i + 1], '^%d+') or '')
    if not taken or taken <= now then call('HDEL', LIMITS, fields[i]) end
  end
end
local taken, since = string.match(call('HGET', LIMITS, field) or '', '^(%d+) (%d+) ')
local from, turns = math.max(tonumber(taken or '') or 0, now), 0
since = tonumber(since or '') or 0
-- Nothing is taken ahead: a time further away is of another rule, or of a clock that went back since.
from = math.min(from, now + math.ceil(burst * per / count))
if asked < 0 then
  -- More was there than jobs.
  from, since = math.max(0, from - math.floor(-asked * per / count)), 0
else
  turns = math.max(0, math.min(asked, math.floor((burst * per - (from - now) * count) / per)))
  from = from + math.ceil(turns * per / count)
  if turns == asked then since = 0 elseif since == 0 or since * 1000 > now then since = math.floor(now / 1000) end
end
call('HSET', LIMITS, field, string.format('%.0f %.0f ', from, since) .. rule)
return { turns, math.max(0, math.ceil(from - (burst - 1) * per / count - now)) }
