-- limit: takes turns of limits. Each limit has a field of one hash: until when its turns are taken (epoch us), since
--        when jobs wait for their turns (epoch ms), and its rule. A field whose time is over says nothing.
-- KEYS   the limits of the namespace.
-- ARGV   per limit four: field, us that the turns take, us that turns may be ahead of their time, rule.
-- Answer { now us, then per limit the time from which on its turns are taken, us }
-- Work   one field a limit, and all of them when they are many. First write HDEL: a full Redis accepts the call.
local LIMITS, MANY = KEYS[1], 1000
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = { now }
call('HDEL', LIMITS, '')
if call('HLEN', LIMITS) > MANY then
  local fields = call('HGETALL', LIMITS)
  for i = 1, #fields, 2 do
    local taken = tonumber(string.match(fields[i + 1], '^%d+') or '')
    if not taken or taken <= now then call('HDEL', LIMITS, fields[i]) end
  end
end
for i = 1, #ARGV, 4 do
  local field, span, ahead, rule = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3]
  local taken, since, before = string.match(call('HGET', LIMITS, field) or '', '^(%d+) (%d+) (.*)$')
  -- The clock went back by so much since: the line of turns goes with it.
  local back = math.max(0, (tonumber(since or '') or 0) - math.floor(now / 1000))
  local from = math.max((tonumber(taken or '') or 0) - back * 1000, now)
  if back > 0 then since = string.format('%.0f', math.floor(now / 1000)) end
  -- Turns of another rule hold nobody up.
  if before ~= rule then from = math.min(from, now + ahead) end
  -- Until now no turn lay ahead.
  if from - ahead <= now then since = string.format('%.0f', math.floor(now / 1000)) end
  call('HSET', LIMITS, field, string.format('%.0f', from + span) .. ' ' .. since .. ' ' .. rule)
  answer[#answer + 1] = from
end
return answer
