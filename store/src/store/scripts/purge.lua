-- purge: removes jobs of one queue that nobody holds.
-- KEYS   as in prelude.lua, with due and dead of the queue.
-- ARGV   state (scheduled: due later than now | ready | dead), limit of jobs, limit of bytes of records,
--        the latest due time of ready jobs, ms (missing: now).
-- Answer { count of removed jobs, 1 if more are left }.
-- Work   <= 128 jobs or 1 MiB. First write ZREM, so that a full Redis accepts the call.
local state, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local key = state == 'dead' and KEYS[FIRST_DUE + 1] or KEYS[FIRST_DUE]
local from, to = state == 'scheduled' and '(' .. int(NOW) or '-inf', state == 'ready' and int(math.min(NOW, tonumber(ARGV[4] or nil) or NOW)) or '+inf'
local page = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', 0, most + 1)
local ids, applied, bytes = {}, {}, 0
for i = 1, math.min(#page, 2 * most), 2 do
  local id = page[i]
  local record = call('HGET', JOBS, id)
  bytes = bytes + (record and #record or 0)
  if #ids > 0 and bytes > most_bytes then break end
  push(ids, id)
  -- A redelivery of the message that scheduled the job must not bring it back.
  if record and is_known(record) then
    local known = call('HGET', STATE, id)
    local due = known and is_readable(known) and read_state(known).due or tonumber(page[i + 1])
    push_schedule(applied, record, due)
  end
end
many('ZREM', key, ids)
many('HDEL', JOBS, ids)
many('HDEL', STATE, ids)
remember_applied(applied)
if #applied > 0 then rotate_applied() end
return { #ids, 2 * #ids < #page and 1 or 0 }
