-- complete: removes confirmed jobs and remembers their outcome in gone.
-- KEYS   as in prelude.lua, no due.
-- ARGV   per lease: nonce, born, number of jobs, two bytes per job (position, 1 if the job has a
--        state), then two per job: id, entry of gone ('f' fired, 'd' dropped as too late).
-- Answer per job: done | taken_over | lease_lost; the last two changed nothing. taken_over: the same job
--        continues under another lease or is due again, or another lease completed it. lease_lost: the
--        job was replaced, cancelled or finished, is dead or dying, or is unknown.
-- Work   <= 128 jobs; a constant number of commands and one per lease, and up to three for each job that
--        has left its lease. Reads at most 1 MiB of records for those; any further one counts as
--        lease_lost. First write HDEL.
local leases, done, stated, over, answer = {}, {}, {}, {}, {}
local count, looked, at = 0, 0, 1
-- Whether the same job continues after this attempt. message: the fingerprint of the message that
-- scheduled the job.
local function goes_on(id, message)
  -- Prefers the state, because a record may be large.
  local bytes = call('HGET', STATE, id)
  local size = bytes and 0 or call('HSTRLEN', JOBS, id)
  looked = looked + size
  local record = size > 0 and looked <= 1048576 and call('HGET', JOBS, id)
  local entry = not bytes and size == 0 and (call('HGET', GONE, id) or call('HGET', GONE_OLD, id))
  return bytes and is_readable(bytes) and sub(bytes, 34, 41) == message and byte(bytes, 43) == 0
    or record and is_known(record) and fingerprint_of(record) == message
    or entry and gone_outcome(entry) == 'f' and gone_fingerprint(entry) == message
end
while at <= #ARGV do
  local nonce, left = ARGV[at], call('HGET', LEFT, ARGV[at])
  local lease = left and sub(left, 1, 8) == ARGV[at + 1] and read_lease(nonce, left)
  if lease then push(leases, lease) end
  local first, places = at + 4, ARGV[at + 3]
  local last = at + 3 + 2 * tonumber(ARGV[at + 2])
  for i = first, last, 2 do
    local id, entry = ARGV[i], ARGV[i + 1]
    local position, is_stated = byte(places, i - first + 1, i - first + 2)
    if lease and is_out(lease, position) then
      take_out(lease, position)
      count = count + 1
      done[count], over[2 * count - 1], over[2 * count] = id, id, entry
      if is_stated == 1 then push(stated, id) end
      push(answer, 'done')
    else
      push(answer, goes_on(id, gone_fingerprint(entry)) and 'taken_over' or 'lease_lost')
    end
  end
  at = last + 1
end
many('HDEL', JOBS, done)
many('HDEL', STATE, stated)
-- Before gone: a repeat after a failure of its turn must not find the job in its lease.
close_leases(leases)
remember_gone(over)
return answer
