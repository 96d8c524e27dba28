-- fsck_key: judges one key as a whole: its type, and that it does not expire.
-- KEYS   the key, and the name under which it is put aside; not those of prelude.lua.
-- ARGV   repair (1: repair), the type that it should have.
-- Answer '' (all is well) | wrong_type | key_expires, then 1 where it is repaired.
-- Work   a constant number of commands.
local repair, key, aside = ARGV[1] == '1', KEYS[1], KEYS[2]
local kind = call('TYPE', key).ok
if kind == 'none' then return { '', 0 } end
if kind ~= ARGV[2] then
  if repair then
    -- What is put aside is kept.
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
