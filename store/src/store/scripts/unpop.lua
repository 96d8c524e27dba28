-- unpop: the answer of a pop was lost, or its consumer went away before it got the answer: moves the jobs
--        that this pop still holds back to due, where they were first in order, and none before its due
--        time. Burns nothing; the hand-out counts as an attempt, unless it is known to have reached nobody.
-- KEYS   as in prelude.lua, with due and dead of the queue, then pops and pops_old.
-- ARGV   nonce of the pop, '1' if the jobs that were popped early reached nobody ('' unknown), then the ids
--        to give back (none: all of the pop).
-- Answer count of moved jobs. A copy of the pop that arrives later hands nothing out.
-- Work   <= 128 jobs. First write HDEL, so that a full Redis accepts the call.
local nonce = ARGV[1]
local due_key, pops, pops_old = KEYS[FIRST_DUE], KEYS[FIRST_DUE + 2], KEYS[FIRST_DUE + 3]
-- As sound.lua does: nothing is written where a key has the wrong type.
call('HLEN', pops)
call('HLEN', pops_old)
local set = string.match(due_key, '}:due:(.*)$')
local before = popped(pops, pops_old, nonce)
local ids = {}
for i = 3, #ARGV do ids[i - 2] = ARGV[i] end
if #ids == 0 then
  for id in string.gmatch(before or '', '%z([^%z]*)') do push(ids, id) end
end
local back, left, states = {}, {}, {}
for _, id in ipairs(ids) do
  local bytes = has_popped(id, nonce)
  if bytes and call('ZSCORE', HELD, id) then
    local state = read_state(bytes)
    state.flags, state.pop = 0, NO_POP
    push(left, id)
    local is_early = has(state.marks, EARLY)
    if is_early and ARGV[2] == '1' then state.attempt = state.attempt - 1 end
    push(back, is_early and int(state.due) or int(math.min(NOW, state.due)), id)
    push(states, id, write_state(state))
  end
end
call('HDEL', APPLIED, '-')
many('ZADD', due_key, back)
many('HSET', STATE, states)
many('ZREM', HELD, left)
count_held(set, -#left)
if not before then remember_pop(pops, pops_old, nonce, '') end
return #left
