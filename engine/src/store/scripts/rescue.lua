-- rescue: takes over the jobs of expired leases, and held jobs past their TTR, in one new lease. The
--         caller sends each back: of a job that is not held, the owner crashed.
-- KEYS   as in prelude.lua, no due.
-- ARGV   nonce (8 random bytes), lease ms, limit of jobs, limit of bytes of records.
-- Answer as of claim.lua, without the score of the last unreadable id; next: the next deadline of a
--        lease or a TTR ('' none). Unreadable jobs stay in their lease, or held, and are looked at again
--        after one lease.
-- Work   <= 128 jobs or 1 MiB; checks <= 32 leases and 128 held jobs. First write HDEL.
local nonce, lease, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local before = LEASE_COUNT > 0 and call('HGET', LEFT, nonce)
if before then return answer_again(nonce, before) end
local LEASES_MAX = 32
local answer = { NOW_US, '', 0, 0, '', '', 0, BORN }
local entries, seen, orphans, held_over, later, unheld = {}, {}, {}, {}, {}, {}
local bytes, more, unknown, last_unknown, count = 0, 0, 0, '', 0

-- Returns whether the job leaves its place: it is in the new lease, or has no record.
local function take_over(id, due, is_held)
  if seen[id] then return true end
  local length = call('HSTRLEN', JOBS, id)
  if length == 0 then
    push(orphans, id)
    return true
  end
  if count > 0 and (bytes + length > most_bytes or count >= most) then
    more = 1
    return false
  end
  local record, state = call('HGET', JOBS, id), call('HGET', STATE, id)
  if not (is_known(record) and is_readable(state)) or string.find(id, '[%z\1]') then
    unknown, last_unknown = unknown + 1, id
    return false
  end
  count, bytes, seen[id] = count + 1, bytes + length, true
  if is_held and is_of_queue(record) then unheld[set_of(record)] = (unheld[set_of(record)] or 0) + 1 end
  due = due or state and int(read_state(state).due) or int(NOW)
  entries[count] = lease_entry(id, due)
  push(answer, id, state or '', record)
  push(answer, due)
  return true
end

local ended = call('ZRANGEBYSCORE', LENT, '-inf', NOW, 'LIMIT', 0, LEASES_MAX + 1)
local is_cut = #ended > LEASES_MAX
if is_cut then ended[#ended] = nil end
local texts, lefts, old = many('HMGET', LEASES, ended) or {}, many('HMGET', LEFT, ended) or {}, {}
for i, name in ipairs(ended) do
  local position, unread = 0, unknown
  -- A lease without its text or its bits is damage for fsck.
  if texts[i] and lefts[i] then
    old[i] = read_lease(name, lefts[i])
    for id, due in string.gmatch(texts[i], '%z([^%z\1]*)\1([^%z\1]*)') do
      if more == 0 and is_out(old[i], position) and take_over(id, due) then take_out(old[i], position) end
      position = position + 1
    end
  end
  if more == 0 and (not old[i] or unknown > unread) then push(later, int(NOW + lease), name) end
end
-- Held jobs follow the last ended lease.
if is_cut then more = 1 end
local waited = more == 0 and call('ZRANGEBYSCORE', HELD, '-inf', NOW, 'LIMIT', 0, most + 1) or {}
if #waited > most then more, waited[#waited] = 1, nil end
local again = {}
for _, id in ipairs(waited) do
  local was_full, unread = more, unknown
  if take_over(id, nil, true) then push(held_over, id)
  elseif unknown > unread then push(again, int(NOW + lease), id)
  elseif more > was_full then break end
end
local next_lease = call('ZRANGEBYSCORE', LENT, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local next_held = call('ZRANGEBYSCORE', HELD, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local next = math.min(tonumber(next_lease[2] or math.huge), tonumber(next_held[2] or math.huge))
answer[2], answer[3], answer[4] = next < math.huge and int(next) or '', more, unknown
answer[5], answer[7] = last_unknown, #orphans

call('HDEL', ACTS, '-')
many('HDEL', STATE, orphans)
if count > 0 then write_lease(nonce, NOW + lease, count, entries) end
many('ZADD', HELD, again)
many('ZREM', HELD, held_over)
for set, number in pairs(unheld) do count_held(set, -number) end
many('ZADD', LENT, later)
close_leases(old)
return answer
