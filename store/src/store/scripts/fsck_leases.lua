-- fsck_leases: checks that each claim of this bucket has its three parts, and repairs the damage.
-- KEYS   as in prelude.lua, with the due of every broker in meta.
-- ARGV   repair (1: repair), lease ms of a claim.
-- Answer the nonces of the damaged claims, each repaired if asked for. A claim without its bits or its
--        text is removed. Jobs that its text names and that are nowhere else are then held by an owner
--        that crashed, until now; without the text, fsck_jobs finds them.
-- Work   all claims of the bucket. First write HDEL.
local repair, deadline = ARGV[1] == '1', int(NOW + tonumber(ARGV[2]))
local function pairs_of(list)
  local map = {}
  for i = 1, #list, 2 do map[list[i]] = list[i + 1] end
  return map
end
local texts, settled = pairs_of(call('HGETALL', CLAIMS)), pairs_of(call('HGETALL', SETTLED))
local deadlines = pairs_of(call('ZRANGE', CLAIM_DEADLINES, 0, -1, 'WITHSCORES'))
local answer, late, over = {}, {}, {}
-- Whether a job has left the claim: without the bits, only its place shows this.
local function is_elsewhere(id, record)
  local due_key = DUE[set_of(record)]
  return not due_key or call('ZSCORE', due_key, id) or call('ZSCORE', dead_of(set_of(record)), id) or call('ZSCORE', HELD, id) or #find_claimed(id) > 0
end
local nonces = {}
for _, part in ipairs({ texts, settled, deadlines }) do
  for nonce in pairs(part) do nonces[nonce] = true end
end
for nonce in pairs(nonces) do
  local text, bits = texts[nonce], settled[nonce]
  local _, count = string.gsub(text or '', '%z', '')
  local is_whole = count > 0 and bits and #bits == 8 + math.ceil(count / 8)
  if is_whole and not deadlines[nonce] then
    push(answer, nonce)
    push(late, deadline, nonce)
  elseif not is_whole then
    push(answer, nonce)
    push(over, nonce)
    local held, written, counts = {}, {}, {}
    for id, due in string.gmatch(not bits and text or '', '%z([^%z\1]*)\1([^%z\1]*)') do
      local record, state = call('HGET', JOBS, id), call('HGET', STATE, id)
      if record and is_known(record) and names_owner(record) and is_readable(state) and not is_elsewhere(id, record) then
        local s = state and read_state(state) or new_state(record, tonumber(due) or NOW)
        count_attempt(s)
        -- Without its claim the job has only its state to say that an attempt was under way, and that its
        -- owner is gone. The rescue counts neither again.
        if s.flags == 0 then s.flags, s.crashes = FLAG_COUNTED, math.min(s.crashes + 1, 255) end
        push(held, int(NOW), id)
        if is_of_queue(record) then counts[set_of(record)] = (counts[set_of(record)] or 0) + 1 end
        push(written, id, write_state(s))
      end
    end
    -- A claim at a time, which stays below the limit of unpack.
    if repair and #held > 0 then
      call('HDEL', APPLIED, '-')
      many('ZADD', HELD, held)
      many('HSET', STATE, written)
      for set, number in pairs(counts) do count_held(set, number) end
    end
  end
end
if repair and #answer > 0 then
  call('HDEL', APPLIED, '-')
  many('ZADD', CLAIM_DEADLINES, late)
  many('HDEL', CLAIMS, over)
  many('HDEL', SETTLED, over)
  many('ZREM', CLAIM_DEADLINES, over)
end
return answer
