-- Keys: stream. Arguments: group, length, idle.
-- Delete consumers that are gone and have no pending entries, and trim the stream.
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
