-- fsck_jobs: checks ids of this bucket, each by all its data at one instant, and repairs the damage.
-- KEYS   as in prelude.lua, with the due of every broker in meta, and the sets of the queues of the ids,
--        then quarantine.
-- ARGV   repair (1: repair), lease ms of a claim, dead retention ms, limit of bytes of records, then
--        three per id: id, finding of the caller ('' none, 'bucket' the id belongs to another bucket,
--        'id' Dwell never writes such an id), the record that the caller could not decode ('' none).
-- Answer { count of checked ids (at least one; the others exceed the limit), then per problem: position
--        of the id, problem, 1 if repaired, detail }. Reports the gravest problem of an id: check a
--        repaired id again. Detail: the broker of `meta_broker`, or `=` and the
--        queue that KEYS lack; the quarantine field of `wrong_bucket`;
--        the state of a `lease_expired` of a held job, which the caller repairs.
-- Work   <= 128 ids or 1 MiB a call; about 10 commands an id. First write ZREM or HDEL if an id is
--        removed, else HSET, HSETNX or ZADD.
local repair, span, retention, most_bytes = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local QUARANTINE = KEYS[#KEYS]
-- Rescue runs every second, sweep every half minute: more than this past its time, a job was missed.
-- The clocks of masters differ by less than SKEW.
local RESCUE_GRACE, SWEEP_GRACE, SKEW = 60000, 600000, 60000
local SCORE_MAX = 9007199254740992
local INVALID = 2

local function is_time(score) return score == math.floor(score) and score > -SCORE_MAX and score < SCORE_MAX end

local function leave_all(places, id, record)
  for _, place in ipairs(places) do
    if place.key == HELD and record and is_known(record) then count_unheld(record) end
    if place.key then call('ZREM', place.key, id) else take_out(place.claim, place.position) end
  end
  close_claims(all_claims())
end

-- Copies the data of an id to quarantine: a line that describes it, then state and record, unchanged.
-- Returns the field.
local function put_aside(problem, id, place, state_bytes, record)
  local field = int(NOW_US) .. ' ' .. id
  local head = string.format('1 %s %s %s %d %d\n', problem, place and place.name or '-', place and place.text or '-', #state_bytes, #record)
  call('HSET', QUARANTINE, field, head .. state_bytes .. record)
  return field
end

local function put_all_aside(problem, id, places, state_bytes, record)
  local field = put_aside(problem, id, places[1], state_bytes or '', record)
  leave_all(places, id, record)
  call('HDEL', JOBS, id)
  call('HDEL', STATE, id)
  return field
end

local function bury(places, id, record, state, why)
  state.flags = 0
  if state.reason == 0 then state.reason, state.error = INVALID, why end
  leave_all(places, id, record)
  call('HSET', STATE, id, write_state(state))
  enter(set_of(record))
  call('ZADD', dead_of(set_of(record)), int(NOW), id)
end

local function wait_again(places, id, record, state, due_key, due)
  leave_all(places, id, record)
  if state then
    state.flags = 0
    call('HSET', STATE, id, write_state(state))
  end
  enter(set_of(record))
  call('ZADD', due_key, int(due), id)
end

local function find_places(id)
  local places = {}
  local function look(key, name)
    local text = call('ZSCORE', key, id)
    if text then places[#places + 1] = { key = key, name = name, text = text, score = tonumber(text) } end
  end
  look(HELD, 'held')
  look(DEAD, 'dead')
  for _, key in pairs(DEAD_OF) do look(key, 'dead') end
  for name, key in pairs(DUE) do look(key, 'due:' .. name) end
  for _, one in ipairs(find_claimed(id)) do
    local deadline = call('ZSCORE', CLAIM_DEADLINES, one.claim.nonce) or '0'
    push(places, { claim = one.claim, position = one.position, name = 'claim', text = deadline, score = tonumber(deadline) })
  end
  return places
end

-- Chooses the set in which a job of several sets stays: that of its state, else one in which it does
-- not fire.
local function choose(places, state, own)
  local by_name, latest = {}, nil
  for _, place in ipairs(places) do
    by_name[place.name] = place
    if string.sub(place.name, 1, 4) == 'due:' and (not latest or place.score > latest.score) then latest = place end
  end
  local due = by_name[own] or latest
  if by_name.claim then return by_name.claim end
  if by_name.held and state and state.flags ~= 0 then return by_name.held end
  if by_name.dead and (state and state.reason ~= 0 or not due) then return by_name.dead end
  return due or by_name.held
end

-- Returns problem, whether it is repaired, and detail; nil if there is no damage.
local function judge(id, odd, unreadable)
  local record, state_bytes = call('HGET', JOBS, id), call('HGET', STATE, id)
  local places = find_places(id)
  if not record then
    if #places == 0 and not state_bytes then return end
    if repair then
      leave_all(places, id)
      call('HDEL', STATE, id)
    end
    return #places > 0 and 'index_without_record' or 'state_without_record', repair
  end

  -- A record of another version cannot be checked: an instance of that version may be running.
  if #record > 0 and not is_version(string.byte(record, 1)) then return 'unknown_version', false end
  local function aside(problem)
    return problem, repair, repair and put_all_aside(problem, id, places, state_bytes, record) or nil
  end
  if not is_known(record) or record == unreadable then return aside('unreadable_record') end
  if odd == 'id' then return aside('bad_id') end
  if state_bytes and #state_bytes > 0 and string.byte(state_bytes, 1) ~= STATE_VERSION then return 'unknown_version', false end
  local set = set_of(record)
  local own, due_key = 'due:' .. set, DUE[set]
  if not due_key then return 'meta_broker', false, set end

  if not is_readable(state_bytes) then
    if repair then
      put_aside('unreadable_state', id, places[1], state_bytes, '')
      local waits = #places == 1 and places[1].name == own and is_time(places[1].score)
      local state = new_state(record, waits and places[1].score or NOW)
      -- The number of attempts is unknown.
      state.marks = has(state.marks, DOUBT) and state.marks or state.marks + DOUBT
      call('HSET', STATE, id, write_state(state))
    end
    return 'unreadable_state', repair
  end
  local state = state_bytes and read_state(state_bytes)
  local is_held = state and state.flags ~= 0

  if odd == 'bucket' then
    -- An attempt is in flight and ends in this bucket.
    for _, place in ipairs(places) do
      if (place.name == 'claim' or place.name == 'held' and is_held) and place.score >= NOW then return 'wrong_bucket', false end
    end
    return aside('wrong_bucket')
  end

  if #places == 0 then
    if repair then
      if state and state.reason ~= 0 then
        bury(places, id, record, state)
      elseif is_held then
        -- The consumer may still finish the job.
        local ttr = (struct.unpack('>I4', record, 3))
        call('ZADD', HELD, int(NOW + (state.flags == FLAG_HELD and ttr or span)), id)
        if is_of_queue(record) then count_held(set, 1) end
      elseif state then
        -- Its last owner may have published it.
        if not has(state.marks, DOUBT) then state.marks = state.marks + DOUBT end
        wait_again(places, id, record, state, due_key, state.due)
      else
        bury(places, id, record, new_state(record, NOW), 'found without its due time, which is lost: requeue it to publish it now')
      end
    end
    return 'record_without_index', repair
  end

  if #places > 1 then
    if repair then
      local stays, others = choose(places, state, own), {}
      for _, place in ipairs(places) do
        if place ~= stays then push(others, place) end
      end
      leave_all(others, id, record)
      if string.sub(stays.name, 1, 4) == 'due:' then
        call('ZREM', stays.key, id)
        enter(set)
        call('ZADD', due_key, stays.text, id)
      end
    end
    return 'in_two_sets', repair
  end

  local place = places[1]
  local waits = string.sub(place.name, 1, 4) == 'due:'
  if waits and place.name ~= own then
    if repair then
      leave_all(places, id, record)
      enter(set)
      call('ZADD', due_key, place.text, id)
    end
    return 'wrong_broker', repair
  end

  if not is_time(place.score) or place.name == 'dead' and place.score > NOW + SKEW then
    if repair then
      if place.name == 'dead' then
        call('ZADD', place.key, int(NOW), id)
      elseif place.name == 'held' then
        call('ZADD', HELD, int(NOW + span), id)
      elseif place.name == 'claim' then
        call('ZADD', CLAIM_DEADLINES, int(NOW + span), place.claim.nonce)
      elseif state then
        call('ZADD', due_key, int(state.due), id)
      else
        bury(places, id, record, new_state(record, NOW), 'its due time was no time: requeue it to publish it now')
      end
    end
    return 'bad_score', repair
  end

  if place.name == 'held' and not is_held then
    if repair then
      -- Its last owner may have published it.
      state = state or new_state(record, NOW)
      count_attempt(state)
      wait_again(places, id, record, state, due_key, state.due)
    end
    return 'lease_without_owner', repair
  end
  if place.name == 'held' or place.name == 'claim' then
    if place.score < NOW - RESCUE_GRACE then
      -- The attempt has failed: next wait or death. Only the caller can read the retry array.
      if place.name == 'held' and state.flags == FLAG_HELD then return 'lease_expired', false, state_bytes end
      if repair then
        state = state or new_state(record, select(2, find_claimed(id)) or NOW)
        -- A crash that the state counts is not counted again.
        if state.flags == 0 then state.crashes = math.min(state.crashes + 1, 255) end
        count_attempt(state)
        wait_again(places, id, record, state, due_key, NOW)
      end
      return 'lease_expired', repair
    end
  elseif is_held then
    if repair then
      state.flags = 0
      call('HSET', STATE, id, write_state(state))
    end
    return 'fence_without_lease', repair
  end

  if waits and state and state.attempt == 0 and state.reason == 0 and place.score < state.due - SKEW then
    if repair then call('ZADD', due_key, int(state.due), id) end
    return 'early_score', repair
  end

  if place.name == 'dead' then
    -- A queue has a retention of its own.
    if place.score < NOW - retention - SWEEP_GRACE and not is_of_queue(record) then
      if repair then
        leave_all(places, id)
        call('HDEL', JOBS, id)
        call('HDEL', STATE, id)
      end
      return 'dead_past_retention', repair
    end
    if not state or state.reason == 0 then
      if repair then
        state = state or new_state(record, place.score)
        state.reason, state.error = INVALID, 'found among the dead without a reason'
        call('HSET', STATE, id, write_state(state))
      end
      return 'dead_without_reason', repair
    end
  end

  for _, key in ipairs({ COMPLETED, COMPLETED_OLD }) do
    local over = call('HGET', key, id)
    -- fsck_memories reports unreadable entries.
    if over and #over >= COMPLETED_BYTES then
      if repair then
        call('HDEL', key, id)
        remember_applied(push_over({}, over))
      end
      return 'gone_but_live', repair
    end
  end
end

local answer, bytes = { 0 }, 0
for i = 5, #ARGV, 3 do
  local id = ARGV[i]
  bytes = bytes + call('HSTRLEN', JOBS, id)
  if i > 5 and bytes > most_bytes then break end
  answer[1] = answer[1] + 1
  local problem, is_repaired, detail = judge(id, ARGV[i + 1], ARGV[i + 2])
  if problem then push(answer, answer[1], problem, is_repaired and 1 or 0) push(answer, detail or '') end
end
return answer
