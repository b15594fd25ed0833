-- stream; group, length, idle
-- Consumers that are gone and hold nothing are forgotten, and the stream has its length again.
for _, words in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local facts = {}
  for i = 1, #words, 2 do
    facts[words[i]] = words[i + 1]
  end
  if facts['pending'] == 0 and facts['idle'] > tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], facts['name'])
  end
end
local length = redis.call('XLEN', KEYS[1])
if length <= tonumber(ARGV[2]) then
  return 0
end
return trim(KEYS[1], length, tonumber(ARGV[2]))
