-- token: from now on its end is told to whoever listens, if it still runs
if not alive or m[STATUS] ~= RUNNING or m[CREATED] + m[TOKEN] ~= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'w', '1')
return 1
