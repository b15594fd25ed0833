-- stream, log, job
-- identity, seq, digest, mark, epoch, payload, lifetime, length, slack, hard cap, length of the log
local stream, log, job = KEYS[1], KEYS[2], KEYS[3]
local identity, seq, digest, mark = 'm:' .. ARGV[1], 's:' .. ARGV[2], ARGV[3], ARGV[4]
local wanted, slack = tonumber(ARGV[8]), tonumber(ARGV[9])

local known = redis.call('HMGET', job, 'epoch', 'offset', identity, seq)
local epoch, marker = known[1], known[3]
if epoch and marker then -- our own mark: the answer to this very question was lost
  local offset, first_mark, first_digest = marker:match('^(%d+)%.(%x+)%.(%x+)$')
  local again = first_mark ~= mark
  return {epoch, tonumber(offset), again and 1 or 0, again and first_digest ~= digest and 1 or 0, 0}
end

-- Whatever may meet a key of another type comes before the first write: nothing is half done.
local length = redis.call('XLEN', stream)
if not epoch then
  redis.call('XLEN', log) -- which would be deleted below; otherwise the first write is to it
end
local trimmed = 0
local full = length >= tonumber(ARGV[10])
if full or (length > wanted and (length - wanted) % slack == 0) then
  trimmed = trim(stream, length, wanted)
  length = length - trimmed
  if length >= tonumber(ARGV[10]) then
    return {false, length}
  end
end

local offset = (tonumber(known[2]) or 0) + 1
if not epoch then
  epoch, offset = ARGV[5], 1
  redis.call('DEL', log) -- of an epoch that nobody remembers
end
redis.call('XADD', log, 'MAXLEN', '~', ARGV[11], offset .. '-0', 'data', ARGV[6], 'mark', mark)
local id = epoch .. '.' .. offset .. '.' .. mark
redis.call('XADD', stream, '*', 'data', ARGV[6], 'id', id)
local marked = offset .. '.' .. mark .. '.' .. digest
-- Two stages may share a number; then it names no event.
local place = known[4] and '' or offset
redis.call('HSET', job, 'epoch', epoch, 'offset', offset, identity, marked, seq, place)
redis.call('EXPIRE', job, ARGV[7])
redis.call('EXPIRE', log, ARGV[7])
return {epoch, offset, 0, 0, trimmed}
