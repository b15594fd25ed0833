-- Keys: stream, job, state.
-- Arguments: group; greatest seq, id and payload of that event; lifetime; channel; id of the newest
-- event; then the entries, all of one job and epoch.
local epoch, seq = ARGV[3]:match('^%x+'), tonumber(ARGV[2])
-- Read first, since that fails on a key of another type: nothing is half done.
local known = redis.call('HMGET', KEYS[2], 'epoch', 'top')
local state = redis.call('GET', KEYS[3])
local state_epoch, state_seq
if state then
  state_epoch, state_seq = state:match('^(%x+)%.%d+%.%x+ (%d+) ')
  if not state_epoch then
    return redis.error_reply('ERR the state of the job was changed by somebody else')
  end
end
-- If several routers have the same entries, only one goes on.
local count = redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 8))
if count == 0 then
  return 0
end
-- The job keeps the greatest seq longer than the state lives.
local top = known[1] == epoch and tonumber(known[2]) or -1
if state_epoch == epoch then
  top = math.max(top, tonumber(state_seq))
end
local stale = known[1] and known[1] ~= epoch
if seq > top and not stale then
  if known[1] then
    redis.call('HSET', KEYS[2], 'top', ARGV[2])
  end
  -- One string: a hash with a value so long would take twice as much memory.
  redis.call('SET', KEYS[3], ARGV[3] .. ' ' .. ARGV[2] .. ' ' .. ARGV[4], 'EX', ARGV[5])
end
-- Without the right to publish only speed is lost: readers look at the log by themselves.
redis.pcall('PUBLISH', ARGV[6], ARGV[7])
return count
