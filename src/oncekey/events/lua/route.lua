-- Keys: stream, job, state, log.
-- Arguments: group; greatest seq, id and element of that event; lifetime; id of the newest event; then
-- the entries, all of one job and epoch.
local call = redis.call
local job, log = KEYS[2], KEYS[4]
local seq, id, element, lifetime = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local epoch, offset = id:match('^(%x+)%.(%d+)%.')
-- Read first, since that fails on a key of another type: nothing is half done.
local known = call('HMGET', job, 'epoch', 'offset', 'top')
local top, in_log = '-1', false
if known[1] == epoch then
  -- The job keeps the greatest seq longer than the state lives.
  top = not known[3] and top or known[3]:match('^(%d+) %d+ %d+$')
  -- The log has the event, unless it was trimmed since.
  in_log = call('LINDEX', log, offset - known[2] - 1) == element
elseif not known[1] then -- it ran out before a router came
  local state = call('GET', KEYS[3])
  if state then
    local state_epoch, state_seq = state:match('^(%x+)%.%d+%.%x+%.(%d+)\t')
    top = state_epoch and (state_epoch == epoch and state_seq or top)
  end
end
if not top then
  return redis.error_reply('ERR the state of the job was changed by somebody else')
end
-- If several routers have the same entries, only one goes on.
local count = call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 7))
if count == 0 then
  return 0
end
if tonumber(seq) > tonumber(top) then
  if known[1] == epoch then
    local now = call('TIME')[1]
    call('HSET', job, 'top', seq .. ' ' .. offset .. ' ' .. ('%.0f'):format(now + lifetime))
    if not in_log then
      call('HSET', job, 'state', element)
    end
    if call('TTL', job) < lifetime then
      call('EXPIRE', job, lifetime)
      call('EXPIRE', log, lifetime)
    end
  elseif not known[1] then
    call('SET', KEYS[3], epoch .. '.' .. element, 'EX', lifetime)
  end
end
-- Without the right to publish only speed is lost: readers look at the log by themselves.
redis.pcall('PUBLISH', log, ARGV[6])
return count
