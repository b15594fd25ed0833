-- Keys: stream. Arguments: group, length, idle, lifetime of a job in seconds.
-- Delete consumers that are gone and have no pending entries, and trim the stream: an entry that
-- every group has acknowledged does not outlive its job.
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
if length == 0 then
  return 0
end
local since = (redis.call('TIME')[1] - ARGV[4]) * 1000
return trim(KEYS[1], length, tonumber(ARGV[2]), ('%.0f-0'):format(since))
