-- Keys: stream. Arguments: group, consumer, idle, how many.
-- Claim entries that their consumer has had for too long. Count deleted ones as lost.
local taken, lost = {}, 0
local found = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[4])
for _, one in ipairs(found) do
  local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], one[1])[1]
  if entry then
    taken[#taken + 1] = {entry[1], entry[2], one[4] + 1}
  else
    lost = lost + 1
    redis.call('XACK', KEYS[1], ARGV[1], one[1])
  end
end
return {lost, taken}
