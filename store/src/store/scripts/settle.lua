-- Shared by hold, release, retry and bury: jobs leave their claim. Follows prelude.lua.
-- ARGV   per claim: nonce, created, number of jobs, then four per job: id, position (one byte), time ('+' ms
--        from now | '>' epoch ms, space, ms from now: the later | '=' epoch ms), state ('' unchanged).
--        The caller writes the state: nobody else changes that of a job in a claim.
-- Answer per job: done | claim_lost (nothing changed).
-- Work   <= 128 jobs. First write HDEL, so that a full Redis accepts the call.

-- Moves the jobs to this sorted set.
local function settle_to(key)
  local claims, members, written, answer, at = {}, {}, {}, {}, 1
  while at <= #ARGV do
    local nonce, settled = ARGV[at], call('HGET', SETTLED, ARGV[at])
    local claim = settled and sub(settled, 1, 8) == ARGV[at + 1] and read_claim(nonce, settled)
    if claim then push(claims, claim) end
    local count = tonumber(ARGV[at + 2])
    for i = at + 3, at + 2 + 4 * count, 4 do
      local position = byte(ARGV[i + 1])
      if claim and is_out(claim, position) then
        take_out(claim, position)
        push(members, int(time_of(ARGV[i + 2])), ARGV[i])
        if ARGV[i + 3] ~= '' then push(written, ARGV[i], ARGV[i + 3]) end
        push(answer, 'done')
      else
        push(answer, 'claim_lost')
      end
    end
    at = at + 3 + 4 * count
  end
  if #members > 0 then
    call('HDEL', APPLIED, '-')
    enter(string.match(key, '}:%l+:(.*)$') or '')
  end
  many('ZADD', key, members)
  many('HSET', STATE, written)
  close_claims(claims)
  return answer
end
