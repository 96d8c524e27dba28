-- complete: removes confirmed jobs and remembers their outcome in completed.
-- KEYS   as in prelude.lua, no due.
-- ARGV   per claim: nonce, created, number of jobs, two bytes per job (position, 1 if the job has a
--        state), then two per job: id, entry of completed ('f' fired, 'd' dropped as too late).
-- Answer per job: done | taken_over | claim_lost; the last two changed nothing. taken_over: the same job
--        continues under another claim or is due again, or another claim completed it. claim_lost: the
--        job was replaced, cancelled or finished, is dead or dying, or is unknown.
-- Work   <= 128 jobs; a constant number of commands and one per claim, and up to three for each job that
--        has left its claim. Reads at most 1 MiB of records for those; any further one counts as
--        claim_lost. First write HDEL.
local claims, done, stated, over, answer = {}, {}, {}, {}, {}
local count, looked, at = 0, 0, 1
-- Whether the same job continues after this attempt. message: the fingerprint of the message that
-- scheduled the job.
local function goes_on(id, message)
  -- Prefers the state, because a record may be large.
  local bytes = call('HGET', STATE, id)
  local size = bytes and 0 or call('HSTRLEN', JOBS, id)
  looked = looked + size
  local record = size > 0 and looked <= 1048576 and call('HGET', JOBS, id)
  local entry = not bytes and size == 0 and (call('HGET', COMPLETED, id) or call('HGET', COMPLETED_OLD, id))
  return bytes and is_readable(bytes) and sub(bytes, 34, 41) == message and byte(bytes, 43) == 0
    or record and is_known(record) and fingerprint_of(record) == message
    or entry and completed_outcome(entry) == 'f' and completed_fingerprint(entry) == message
end
while at <= #ARGV do
  local nonce, settled = ARGV[at], call('HGET', SETTLED, ARGV[at])
  local claim = settled and sub(settled, 1, 8) == ARGV[at + 1] and read_claim(nonce, settled)
  if claim then push(claims, claim) end
  local first, places = at + 4, ARGV[at + 3]
  local last = at + 3 + 2 * tonumber(ARGV[at + 2])
  for i = first, last, 2 do
    local id, entry = ARGV[i], ARGV[i + 1]
    local position, is_stated = byte(places, i - first + 1, i - first + 2)
    if claim and is_out(claim, position) then
      take_out(claim, position)
      count = count + 1
      done[count], over[2 * count - 1], over[2 * count] = id, id, entry
      if is_stated == 1 then push(stated, id) end
      push(answer, 'done')
    else
      push(answer, goes_on(id, completed_fingerprint(entry)) and 'taken_over' or 'claim_lost')
    end
  end
  at = last + 1
end
many('HDEL', JOBS, done)
many('HDEL', STATE, stated)
-- Before completed: a repeat after a failure of its turn must not find the job in its claim.
close_claims(claims)
remember_completed(over, COMPLETED_COUNT)
return answer
