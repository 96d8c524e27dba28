-- rescue: takes over the jobs of expired claims, and held jobs past their TTR, in one new claim. The
--         caller sends each back: of a job that is not held, the owner crashed.
-- KEYS   as in prelude.lua, no due.
-- ARGV   nonce (8 random bytes), lease ms, limit of jobs, limit of bytes of records.
-- Answer as of claim.lua, without the score of the last unreadable id; next: the next deadline of a
--        claim or a TTR ('' none). Unreadable jobs stay in their claim, or held, and are looked at again
--        after the span of one claim.
-- Work   <= 128 jobs or 1 MiB; checks <= 32 claims and 128 held jobs. First write HDEL.
local nonce, span, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local before = CLAIM_COUNT > 0 and call('HGET', SETTLED, nonce)
if before then return answer_again(nonce, before) end
local CLAIMS_MAX = 32
local answer = { NOW_US, '', 0, 0, '', '', 0, CREATED }
local entries, seen, orphans, held_over, later, unheld = {}, {}, {}, {}, {}, {}
local bytes, more, unknown, last_unknown, count = 0, 0, 0, '', 0

-- Returns whether the job leaves its place: it is in the new claim, or has no record. `read`: its record
-- and state, if they are read already.
local function take_over(id, due, is_held, read)
  if seen[id] then return true end
  local length = read and #(read[1] or '') or call('HSTRLEN', JOBS, id)
  if length == 0 then
    push(orphans, id)
    return true
  end
  if count > 0 and (bytes + length > most_bytes or count >= most) then
    more = 1
    return false
  end
  local record, state = read and read[1], read and read[2]
  if not read then record, state = call('HGET', JOBS, id), call('HGET', STATE, id) end
  if not (is_known(record) and is_readable(state)) or string.find(id, '[%z\1]') then
    unknown, last_unknown = unknown + 1, id
    return false
  end
  count, bytes, seen[id] = count + 1, bytes + length, true
  if is_held and is_of_queue(record) then unheld[set_of(record)] = (unheld[set_of(record)] or 0) + 1 end
  due = due or state and int(read_state(state).due) or int(NOW)
  entries[count] = claim_entry(id, due)
  push(answer, id, state or '', record)
  push(answer, due)
  return true
end

local ended = call('ZRANGEBYSCORE', CLAIM_DEADLINES, '-inf', NOW, 'LIMIT', 0, CLAIMS_MAX + 1)
local is_cut = #ended > CLAIMS_MAX
if is_cut then ended[#ended] = nil end
local texts, all_settled, old = many('HMGET', CLAIMS, ended) or {}, many('HMGET', SETTLED, ended) or {}, {}
for i, name in ipairs(ended) do
  local position, unread = 0, unknown
  -- A claim without its text or its bits is damage for fsck.
  if texts[i] and all_settled[i] then
    old[i] = read_claim(name, all_settled[i])
    for id, due in string.gmatch(texts[i], '%z([^%z\1]*)\1([^%z\1]*)') do
      if more == 0 and is_out(old[i], position) and take_over(id, due) then take_out(old[i], position) end
      position = position + 1
    end
  end
  -- A claim that no job left is damaged, too. It must not stay in front of the others.
  local is_damaged = not (old[i] and old[i].changed) or unknown > unread
  if more == 0 and is_damaged then push(later, int(NOW + span), name) end
end
-- Held jobs follow the last ended claim.
if is_cut then more = 1 end
local waited = more == 0 and call('ZRANGEBYSCORE', HELD, '-inf', NOW, 'LIMIT', 0, most + 1) or {}
if #waited > most then more, waited[#waited] = 1, nil end
local again = {}
-- Several are read at a time: as many as fit.
local SLICE = 32
local first, is_full = 1, false
while first <= #waited and not is_full do
  local last, planned = first, bytes + call('HSTRLEN', JOBS, waited[first])
  if count > 0 and planned > most_bytes then
    more = 1
    break
  end
  while last < #waited and last - first + 1 < SLICE do
    planned = planned + call('HSTRLEN', JOBS, waited[last + 1])
    if planned > most_bytes then break end
    last = last + 1
  end
  local records, states = call('HMGET', JOBS, unpack(waited, first, last)), call('HMGET', STATE, unpack(waited, first, last))
  for i = first, last do
    local id, unread = waited[i], unknown
    local read = { records[i - first + 1], states[i - first + 1] }
    if take_over(id, nil, true, read) then push(held_over, id)
    elseif unknown > unread then push(again, int(NOW + span), id)
    else
      is_full = true
      break
    end
  end
  first = last + 1
end
local next_deadline = call('ZRANGEBYSCORE', CLAIM_DEADLINES, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local next_held = call('ZRANGEBYSCORE', HELD, '(' .. int(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local next = math.min(tonumber(next_deadline[2] or math.huge), tonumber(next_held[2] or math.huge))
answer[2], answer[3], answer[4] = next < math.huge and int(next) or '', more, unknown
answer[5], answer[7] = last_unknown, #orphans

call('HDEL', APPLIED, '-')
many('HDEL', STATE, orphans)
if count > 0 then write_claim(nonce, NOW + span, count, entries) end
many('ZADD', HELD, again)
many('ZREM', HELD, held_over)
for set, number in pairs(unheld) do count_held(set, -number) end
many('ZADD', CLAIM_DEADLINES, later)
close_claims(old)
return answer
