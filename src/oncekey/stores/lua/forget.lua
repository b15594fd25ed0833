-- token, force
if alive then
  local open = m[STATUS] == RUNNING or m[STATUS] == HELD
  if m[CREATED] + m[TOKEN] ~= tonumber(ARGV[1]) or (open and ARGV[2] ~= '1') then
    return LOST
  end
end
redis.call('DEL', KEYS[1])
wake()
return DONE
