-- Keys: log, job. Arguments: an offset or 'first'; how many; how many at once; how many bytes; if
-- the reader wants to be told of the next event, for how many seconds.
local log, job, watch = KEYS[1], KEYS[2], ARGV[5]
local known = redis.call('HMGET', job, 'epoch', 'offset', 'gone', 'watched')
local epoch, last = known[1], tonumber(known[2])
if watch then -- without the right to write, the reader looks by itself
  if not known[4] then
    redis.pcall('HSET', job, 'watched', '1')
  end
  if not epoch then -- the job may never begin, so that this must not stay
    redis.pcall('EXPIRE', job, watch)
  end
end
if not epoch then
  return {false}
end
local first = last - redis.call('LLEN', log) + 1
local offset = ARGV[1] == 'first' and first - 1 or tonumber(ARGV[1])
local mark = false
if offset >= first and offset <= last then
  local at = redis.call('LINDEX', log, offset - first)
  mark = at and at:match('^' .. ('%.0f'):format(offset) .. '%.(%x+)%.') or false
end
-- In small parts, because nobody knows how large the next ones are.
local entries, bytes, from = {}, 0, math.max(offset + 1 - first, 0)
local most, step, budget = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
while #entries < most and bytes < budget do
  local found = redis.call('LRANGE', log, from, from + math.min(step, most - #entries) - 1)
  for _, entry in ipairs(found) do
    if bytes < budget then
      entries[#entries + 1] = entry
      bytes = bytes + #entry
    end
  end
  from = from + step
  if #found < step then
    break
  end
end
return {epoch, first, last, offset, mark, known[3], entries}
