-- Keys: stream, job, state.
-- Arguments: group, entry, seq, id of the event, payload, lifetime, channel.
local epoch, seq = ARGV[4]:match('^%x+'), tonumber(ARGV[3])
-- Read first, since that fails on a key of another type: nothing is half done.
local known = redis.call('HMGET', KEYS[2], 'epoch', 'top')
local state = redis.call('HMGET', KEYS[3], 'epoch', 'seq')
-- If several routers have the same entry, only one goes on.
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
-- The job keeps the greatest seq longer than the state lives.
local top = known[1] == epoch and tonumber(known[2]) or -1
if state[1] == epoch then
  top = math.max(top, tonumber(state[2]))
end
local stale = known[1] and known[1] ~= epoch
if seq > top and not stale then
  if known[1] then
    redis.call('HSET', KEYS[2], 'top', ARGV[3])
  end
  redis.call('HSET', KEYS[3], 'epoch', epoch, 'seq', ARGV[3], 'id', ARGV[4], 'data', ARGV[5])
  redis.call('EXPIRE', KEYS[3], ARGV[6])
end
-- Without the right to publish only speed is lost: readers look at the log by themselves.
redis.pcall('PUBLISH', ARGV[7], ARGV[4])
return 1
