-- fsck_key: checks one key as a whole: its type, and that it has no time to live.
-- KEYS   the key, and its name in quarantine; not those of prelude.lua.
-- ARGV   repair (1: repair), the right type.
-- Answer '' (no damage) | wrong_type | key_expires, then 1 if repaired.
-- Work   a constant number of commands.
local repair, key, aside = ARGV[1] == '1', KEYS[1], KEYS[2]
local kind = call('TYPE', key).ok
if kind == 'none' then return { '', 0 } end
if kind ~= ARGV[2] then
  if repair then
    -- A key in quarantine must not expire.
    call('PERSIST', key)
    if call('RENAMENX', key, aside) == 0 then return { 'wrong_type', 0 } end
  end
  return { 'wrong_type', repair and 1 or 0 }
end
if call('PTTL', key) >= 0 then
  if repair then call('PERSIST', key) end
  return { 'key_expires', repair and 1 or 0 }
end
return { '', 0 }
