-- limit: takes turns of limits. Each limit has a field of one hash: until when its turns are taken (epoch us), since
--        when jobs wait for their turns (epoch ms), and its rule. A field whose time is over says nothing.
-- KEYS   the limits of the namespace.
-- ARGV   per limit five: field, us that the turns take, us that turns may be ahead of their time, rule (turns, the us
--        that they take, burst), the longest wait of each job for its turn, us ('-' any; '' any of all jobs). A job
--        whose turn would come later takes none.
-- Answer { now us, then per limit the time from which on its turns are taken, us, and per job '1' if it has a turn,
--        else '0' ('' all have) }
-- Work   one field a limit, three where the rule is another, and all of them in one of 64 calls when they are many.
--        First write HDEL: a full Redis accepts the call.
local LIMITS, MANY, RECENT = KEYS[1], 1000, 60000000
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = { now }
call('HDEL', LIMITS, '')
if now % 64 == 0 and call('HLEN', LIMITS) > MANY then
  local fields = call('HGETALL', LIMITS)
  for i = 1, #fields, 2 do
    local taken = tonumber(string.match(fields[i + 1], '^%d+') or '')
    if not taken or taken <= now then call('HDEL', LIMITS, fields[i]) end
  end
end
for i = 1, #ARGV, 5 do
  local field, span, ahead, rule, waits = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4]
  local taken, since, before = string.match(call('HGET', LIMITS, field) or '', '^(%d+) (%d+) (.*)$')
  -- The clock went back by so much since: the line of turns goes with it.
  local back = math.max(0, (tonumber(since or '') or 0) - math.floor(now / 1000))
  local from = math.max((tonumber(taken or '') or 0) - back * 1000, now)
  if back > 0 then since = string.format('%.0f', math.floor(now / 1000)) end
  -- Turns of another rule hold nobody up. But while instances with both rules take turns, each rule keeps its own
  -- line, in a field beside: else each change between them would begin one anew.
  if before and before ~= rule then
    local own = field .. '\0' .. rule
    local until_us, left = string.match(call('HGET', LIMITS, own) or '', '^(%d+) (%d+)$')
    call('HSET', LIMITS, field .. '\0' .. before, taken .. string.format(' %.0f', now))
    call('HDEL', LIMITS, own)
    local ago = left and now - tonumber(left)
    local is_recent = ago and ago >= 0 and ago < RECENT
    from = is_recent and math.max(tonumber(until_us), now) or math.min(from, now + ahead)
  end
  -- Until now no turn lay ahead.
  if from - ahead <= now then since = string.format('%.0f', math.floor(now / 1000)) end
  local given = {}
  if waits ~= '' then
    local count, per, burst = string.match(rule, '^(%d+)/(%d+)/(%d+)$')
    count, per, burst = tonumber(count), tonumber(per), tonumber(burst)
    local turns, lead = 0, math.ceil((burst - 1) * per / count)
    for wait in string.gmatch(waits, '%S+') do
      local at = math.max(now, from + math.ceil(turns * per / count) - lead)
      local has_turn = wait == '-' or at <= now + tonumber(wait)
      given[#given + 1] = has_turn and '1' or '0'
      if has_turn then turns = turns + 1 end
    end
    span = math.ceil(turns * per / count)
  end
  call('HSET', LIMITS, field, string.format('%.0f', from + span) .. ' ' .. since .. ' ' .. rule)
  answer[#answer + 1], answer[#answer + 2] = from, table.concat(given)
end
return answer
