-- upgrade: moves the leases of schema 1 (`run`: id -> deadline ms, one a job) to held, and makes `run` a
--          hash, so that each script of an older instance fails at its check of types, before it writes.
--          A moved job that was not held for a consumer counts as held by an owner that crashed.
-- KEYS   as in prelude.lua, then run.
-- ARGV   limit of jobs.
-- Answer count of moved jobs; repeat until 0.
-- Work   <= 128 jobs. First write HDEL.
local OLD = KEYS[#KEYS]
-- An error: still a sorted set.
local fields = redis.pcall('HLEN', OLD)
if type(fields) == 'number' and fields > 0 then return 0 end
local page, ids, held, written = call('ZRANGE', OLD, 0, tonumber(ARGV[1]) - 1, 'WITHSCORES'), {}, {}, {}
for i = 1, #page, 2 do
  ids[#ids + 1] = page[i]
  push(held, page[i + 1], page[i])
end
local states = many('HMGET', STATE, ids) or {}
for i, id in ipairs(ids) do
  if states[i] and is_readable(states[i]) then
    local state = read_state(states[i])
    -- Schema 1 counted the attempt when it claimed the job, and 2 marked a lease that was taken over
    -- and its crash counted.
    if state.flags == 0 then
      state.flags, state.crashes = FLAG_COUNTED, math.min(state.crashes + 1, 255)
    end
    push(written, id, write_state(state))
  end
end
call('HDEL', ACTS, '-')
many('ZADD', HELD, held)
many('HSET', STATE, written)
many('ZREM', OLD, ids)
if call('EXISTS', OLD) == 0 then call('HSET', OLD, 'schema', '2') end
return #ids
