-- places: gives places of limits back, keeps others for longer, and takes those that are free. A limit has one set of
--         what is out, each until the end of its lease.
-- KEYS   the limits of the namespace, then per limit its set: place -> end of the lease, epoch ms.
-- ARGV   per limit seven: name, most places, who tells ('' all processes alike), how many jobs wait for a place ('' not
--        told, '?' one if a place to take is not free), counts of places to give back, to keep and to take; then these places, each of the last two kinds with
--        the ms from now until its lease ends.
-- Answer { now us, then per limit: count of free places after the call, ms until the next lease ends (-1 none), per
--        place to take '1' if it is taken (also by a call before), else '0' }
-- Work   the places of the call and those whose leases ended; one field of the limits a limit, and all of them in one of
--        64 calls when they are many. First write HDEL: a full Redis accepts the call.
local LIMITS, MANY, TOLD, LIVE, CHUNK = KEYS[1], 1000, 60000000, 5000000, 1000
local call = redis.call
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now, answer, at = math.floor(now_us / 1000), { now_us }, 1
local function ends(ms) return string.format('%.0f', now + tonumber(ms)) end
-- Adds these places, each with its ms. Answers how many are new. The number of arguments of one command is bounded.
local function add(places, from, to)
  local added = 0
  for first = from, to, CHUNK do
    local args = {}
    for j = first, math.min(first + CHUNK - 1, to), 2 do args[#args + 1], args[#args + 2] = ends(ARGV[j + 1]), ARGV[j] end
    added = added + call('ZADD', places, unpack(args))
  end
  return added
end
call('HDEL', LIMITS, '')
if now_us % 64 == 0 and call('HLEN', LIMITS) > MANY then
  local fields = call('HGETALL', LIMITS)
  for i = 1, #fields, 2 do
    local taken = tonumber(string.match(fields[i + 1], '^%d+') or '')
    if not taken or taken <= now_us then call('HDEL', LIMITS, fields[i]) end
  end
end
for i = 2, #KEYS do
  local places, name, most, teller, waiting = KEYS[i], ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local back, keep, take = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  at = at + 7
  call('ZREMRANGEBYSCORE', places, '-inf', string.format('%.0f', now))
  for j = at, at + back - 1, CHUNK do call('ZREM', places, unpack(ARGV, j, math.min(j + CHUNK, at + back) - 1)) end
  at = at + back
  -- What is out counts, however many there are.
  add(places, at, at + 2 * keep - 1)
  at = at + 2 * keep
  local count, taken = call('ZCARD', places), {}
  if count + take <= most then
    count = count + add(places, at, at + 2 * take - 1)
    taken[1] = string.rep('1', take)
  else
    for j = at, at + 2 * take - 1, 2 do
      local has_place = call('ZSCORE', places, ARGV[j])
      if has_place or count < most then
        call('ZADD', places, ends(ARGV[j + 1]), ARGV[j])
        if not has_place then count = count + 1 end
        taken[#taken + 1] = '1'
      else
        taken[#taken + 1] = '0'
      end
    end
  end
  at = at + 2 * take
  if waiting == '?' then waiting = string.find(table.concat(taken), '0', 1, true) and '1' or '0' end
  local first = call('ZRANGE', places, 0, 0, 'WITHSCORES')
  if waiting ~= '' then
    local field = name .. '\0in_flight ' .. teller
    local told, since = string.match(call('HGET', LIMITS, field) or '', '^(%d+) (%d+) ')
    told, since = tonumber(told or '') or 0, tonumber(since or '') or 0
    if waiting == '0' then since = 0
    elseif since == 0 or since > now or told - TOLD + LIVE < now_us then since = now end
    call('HSET', LIMITS, field, string.format('%.0f %.0f ', now_us + TOLD, since) .. string.format('%.0f', most) .. ' ' .. waiting)
  end
  answer[#answer + 1] = math.max(0, most - count)
  answer[#answer + 1] = first[2] and math.max(0, math.ceil(tonumber(first[2]) - now)) or -1
  answer[#answer + 1] = table.concat(taken)
end
return answer
