-- Keys: log, job. Arguments: an offset, 'first' or 'seq'; how many; the number of an event.
local log, job = KEYS[1], KEYS[2]
local known = redis.call('HMGET', job, 'epoch', 'offset', 's:' .. ARGV[3])
local epoch, last = known[1], tonumber(known[2])
if not epoch then
  return {false}
end
local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
local first = oldest and tonumber(oldest[1]:match('^%d+')) or last + 1
local offset = tonumber(ARGV[1])
if ARGV[1] == 'first' then
  offset = first - 1
elseif ARGV[1] == 'seq' then
  offset = tonumber(known[3])
end
if not offset then
  return {epoch, first, last, false, false, {}}
end
local at = redis.call('XRANGE', log, offset .. '-0', offset .. '-0')[1]
local mark = at and at[2][4] or false
local entries = redis.call('XRANGE', log, (offset + 1) .. '-0', '+', 'COUNT', ARGV[2])
return {epoch, first, last, offset, mark, entries}
