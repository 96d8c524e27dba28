-- complete: removes confirmed jobs and remembers their outcome in gone.
-- KEYS   as in prelude.lua, no due.
-- ARGV   outcome ('f' fired, 'd' dropped as too late), then two per job: id, and fence followed by the
--        fingerprint of the message that scheduled the job.
-- Answer per job: done | taken_over | lease_lost; the last two changed nothing. taken_over: the same job
--        continues under another claim or is due again, or another claim completed it. lease_lost: the
--        job was replaced, cancelled or finished, is dead or dying, or is unknown.
-- Work   <= 128 jobs; a constant number of commands, and up to three for each lost lease. Reads at most
--        1 MiB of records for those; any further one counts as lease_lost. First write ZREM.
local outcome, ids = ARGV[1], {}
for i = 2, #ARGV, 2 do ids[i / 2] = ARGV[i] end
local states = many('HMGET', STATE, ids) or {}
local done, over, answer, count, looked = {}, {}, {}, 0, 0
for i, id in ipairs(ids) do
  local bytes, proof = states[i], ARGV[2 * i + 1]
  if bytes and fence_of(bytes) == sub(proof, 1, 8) and is_readable(bytes) then
    count = count + 1
    done[count], over[2 * count - 1], over[2 * count] = id, id, gone_entry(outcome, bytes)
    answer[i] = 'done'
  else
    -- Prefers the state, because a record may be large.
    local message, size = sub(proof, 9), bytes and 0 or call('HSTRLEN', JOBS, id)
    looked = looked + size
    local record = size > 0 and looked <= 1048576 and call('HGET', JOBS, id)
    local entry = not bytes and size == 0 and (call('HGET', GONE, id) or call('HGET', GONE_OLD, id))
    local is_same = bytes and is_readable(bytes) and sub(bytes, 34, 41) == message and byte(bytes, 43) == 0
      or record and is_known(record) and fingerprint_of(record) == message
      or entry and gone_outcome(entry) == 'f' and gone_fingerprint(entry) == message
    answer[i] = is_same and 'taken_over' or 'lease_lost'
  end
end
many('ZREM', RUN, done)
many('HDEL', JOBS, done)
many('HDEL', STATE, done)
remember_gone(over)
return answer
