-- Keys: stream, log, job.
-- Arguments: field of the identity, field of the number, digest, mark, epoch, payload.
-- A line before this sets lifetime, wanted, slack, most and kept.
local call = redis.call
local stream, log, job = KEYS[1], KEYS[2], KEYS[3]
local identity, seq, digest, mark, payload = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]

local known = call('HMGET', job, 'epoch', 'offset', identity, seq)
local epoch, marker = known[1], known[3]
if epoch and marker then -- with our own mark, the answer to this same request was lost
  local offset, first_mark, first_digest = marker:match('^(%d+)%.(%x+)%.(%x+)$')
  local again = first_mark ~= mark
  return {epoch, tonumber(offset), again and 1 or 0, again and first_digest ~= digest and 1 or 0, 0}
end

-- Commands that fail on a key of another type come before the first write, so that nothing is
-- half done.
local length = call('XLEN', stream)
if not epoch then
  call('XLEN', log) -- it would be deleted below; with an epoch the first write is to it
end
local trimmed = 0
if length >= most or (length > wanted and (length - wanted) % slack == 0) then
  trimmed = trim(stream, length, wanted)
  length = length - trimmed
  if length >= most then
    return {false, length}
  end
end

local number = (tonumber(known[2]) or 0) + 1
if not epoch then
  epoch, number = ARGV[5], 1
  call('DEL', log) -- of an epoch that is forgotten
end
local offset = tostring(number) -- once, since each use would convert it again
if number > kept then
  call('XADD', log, 'MAXLEN', '~', kept, offset .. '-0', 'data', payload, 'mark', mark)
else
  call('XADD', log, offset .. '-0', 'data', payload, 'mark', mark)
end
local id = epoch .. '.' .. offset .. '.' .. mark
call('XADD', stream, '*', 'data', payload, 'id', id)
local marked = offset .. '.' .. mark .. '.' .. digest
-- If two stages share a number, it identifies no event.
local place = known[4] and '' or offset
call('HSET', job, 'epoch', epoch, 'offset', offset, identity, marked, seq, place)
call('EXPIRE', job, lifetime)
call('EXPIRE', log, lifetime)
if trimmed == 0 then
  return id -- this costs less than a list
end
return {epoch, number, 0, 0, trimmed}
