-- Keys: job, log, state.
local known = redis.call('HMGET', KEYS[1], 'epoch', 'offset', 'top', 'state')
local epoch = known[1]
if not epoch then -- perhaps it ran out before a router came
  return redis.call('GET', KEYS[3])
end
local offset, till = (known[3] or ''):match('^%d+ (%d+) (%d+)$')
if not offset or tonumber(redis.call('TIME')[1]) >= tonumber(till) then
  return false
end
for _, element in ipairs({
  redis.call('LINDEX', KEYS[2], offset - known[2] - 1) or '',
  known[4] or '', -- of an event that the log no longer has
}) do
  if element:match('^%d+') == offset then
    return epoch .. '.' .. element
  end
end
return false
