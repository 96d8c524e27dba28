-- shared: runs several calls of one script in one command, on a server that has all buckets. scripts.rs puts
-- the text of the script, with the parts before it, into `run`: its definitions are made again for each call,
-- over the KEYS and ARGV of that call.
-- KEYS   those of each call, one call after the other.
-- ARGV   the number of calls; per call, the numbers of its keys and of its arguments; then the arguments of
--        each call, one call after the other.
-- Answer per call: its answer, an array; or its error, a string that begins with the word of the error. The
--        error of a call ends that call alone, as if each had come by itself.
-- Errors 'DWELL_FULL': Redis is full, and no call was run. Each is to come by itself.
-- Work   that of the calls, and two commands; their number and their jobs are bounded (call/sharing.rs).
local function run(KEYS, ARGV)
-- SCRIPT
end
-- An error is text, or a table since Redis 7. That of Lua, and before Redis 7 some of Redis, have other words
-- before the one of the error.
local function text_of(why)
  local text = string.gsub(tostring(type(why) == 'table' and why.err or why), '^%-', '')
  return string.find(text, '^%u[%u%d_]* ') and text or 'ERR ' .. text
end
-- A full Redis refuses what allocates memory only as the first write of a command: behind a call that wrote,
-- it would take all others. KEYS[6] is `applied`; the field is that of `touch` in prelude.lua.
local probe = redis.pcall('HSET', KEYS[6], '-', '')
local refused = type(probe) == 'table' and probe.err
if not refused then
  redis.call('HDEL', KEYS[6], '-')
elseif string.find(refused, 'OOM', 1, true) then
  return redis.error_reply('DWELL_FULL no call was run')
end
local count = tonumber(ARGV[1])
local key, argument, answers = 0, 2 * count + 1, {}
for i = 1, count do
  local keys, arguments = {}, {}
  for at = 1, tonumber(ARGV[2 * i]) do keys[at] = KEYS[key + at] end
  for at = 1, tonumber(ARGV[2 * i + 1]) do arguments[at] = ARGV[argument + at] end
  key, argument = key + #keys, argument + #arguments
  local is_over, answer = pcall(run, keys, arguments)
  if is_over and type(answer) == 'table' and not answer.err then
    answers[i] = answer
  else
    answers[i] = text_of(answer)
  end
end
return answers
