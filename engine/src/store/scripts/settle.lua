-- Shared by hold, release, retry and bury: jobs leave their lease. Follows prelude.lua.
-- ARGV   per lease: nonce, born, number of jobs, then four per job: id, position (one byte), time ('+' ms
--        from now | '>' epoch ms, space, ms from now: the later | '=' epoch ms), state ('' unchanged).
--        The caller writes the state: nobody else changes that of a job in a lease.
-- Answer per job: done | lease_lost (nothing changed).
-- Work   <= 128 jobs. First write HDEL, so that a full Redis accepts the call.
local function time_of(time)
  if sub(time, 1, 1) == '=' then return tonumber(sub(time, 2)) end
  local at, span = string.match(time, '^>(%-?%d+) (%d+)$')
  if at then return math.max(tonumber(at), after(tonumber(span))) end
  return after(tonumber(sub(time, 2)))
end

-- Moves the jobs to this sorted set.
local function settle_to(key)
  local leases, members, written, answer, at = {}, {}, {}, {}, 1
  while at <= #ARGV do
    local nonce, left = ARGV[at], call('HGET', LEFT, ARGV[at])
    local lease = left and sub(left, 1, 8) == ARGV[at + 1] and read_lease(nonce, left)
    if lease then push(leases, lease) end
    local count = tonumber(ARGV[at + 2])
    for i = at + 3, at + 2 + 4 * count, 4 do
      local position = byte(ARGV[i + 1])
      if lease and is_out(lease, position) then
        take_out(lease, position)
        push(members, int(time_of(ARGV[i + 2])), ARGV[i])
        if ARGV[i + 3] ~= '' then push(written, ARGV[i], ARGV[i + 3]) end
        push(answer, 'done')
      else
        push(answer, 'lease_lost')
      end
    end
    at = at + 3 + 4 * count
  end
  if #members > 0 then
    call('HDEL', ACTS, '-')
    enter(string.match(key, '}:%l+:(.*)$') or '')
  end
  many('ZADD', key, members)
  many('HSET', STATE, written)
  close_leases(leases)
  return answer
end
