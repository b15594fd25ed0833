-- Keys: stream, log, job, number of shards; the topic of a job that has one.
-- Arguments: field of the marker, field of the seen block, place in the block, seq, digest, mark,
-- epoch, payload; the id of the job, if it has a topic or the event comes after others of a batch;
-- then, of the event of the job before it in the batch, the same two fields and the place.
-- A line before this sets lifetime, wanted, slack, most, kept, recent and shards.
local call = redis.call
local stream, log, job = KEYS[1], KEYS[2], KEYS[3]
local identity, seq, mark, payload = ARGV[1], ARGV[4], ARGV[6], ARGV[8]

local known = call('HMGET', job, 'epoch', 'offset', identity, 'watched', ARGV[2])
local epoch, marker = known[1], known[3]
if epoch and marker then -- with our own mark, the answer to this same request was lost
  local offset, first_mark, first_digest = marker:match('^(%d+)%.(%x+)%.(%x+)$')
  local again = first_mark ~= mark
  local differs = again and first_digest ~= ARGV[5] and 1 or 0
  return {epoch, tonumber(offset), again and 1 or 0, differs, 0}
end
if epoch and known[5] and is_seen(known[5], tonumber(ARGV[3])) then
  return {epoch, 0, 1, -1, 0} -- so old that only this is known
end

local before = ARGV[10]
if before then -- it may have been refused, by a stream that was full or a server without memory
  local was = call('HMGET', job, before, ARGV[11])
  if not (epoch and (was[1] or (was[2] and is_seen(was[2], tonumber(ARGV[12]))))) then
    return -1
  end
end

-- Commands that fail on a key of another type come before the first write, so that nothing is
-- half done.
local length = call('XLEN', stream)
if not epoch then
  local agreed = call('GET', KEYS[4])
  if agreed ~= shards then
    return {false, agreed} -- after a loss of data somebody else may have begun the domain anew
  end
  call('LLEN', log) -- it would be deleted below; with an epoch the first write is to it
end
local trimmed = 0
if length >= most or (length > wanted and (length - wanted) % slack == 0) then
  trimmed = trim(stream, length, wanted)
  length = length - trimmed
  if length >= most then
    return length
  end
end

local topic = KEYS[5]
if topic then -- until when the job lives, for those who look for the jobs of the topic
  local now = tonumber(call('TIME')[1])
  call('ZADD', topic, now + lifetime, ARGV[9])
  call('EXPIRE', topic, lifetime)
  if not epoch then
    call('ZREMRANGEBYSCORE', topic, '-inf', now - 1)
    redis.pcall('PUBLISH', topic, '')
  end
end

local number = (tonumber(known[2]) or 0) + 1
if not epoch then
  epoch, number = ARGV[7], 1
  call('DEL', log) -- of an epoch that is forgotten
end
local offset = tostring(number) -- once, since each use would convert it again
local place = offset .. '.' .. mark
-- Job and domain stand in the name of the log. A quote inside of them is escaped, so that this finds
-- what follows them.
local body = payload:sub(payload:find(',"stage":', 1, true) or 1)
if call('RPUSH', log, place .. '.' .. seq .. ' ' .. body) > kept then
  drop_oldest(log, job)
end
local id = epoch .. '.' .. place
call('XADD', stream, '*', 'data', payload, 'id', id)
call('HSET', job, 'epoch', epoch, 'offset', offset, identity, place .. '.' .. ARGV[5])
if number % recent == 0 then
  compact(job, number - recent)
end
call('EXPIRE', job, lifetime)
call('EXPIRE', log, lifetime)
if known[4] then -- without the right to publish only speed is lost: readers look by themselves
  redis.pcall('PUBLISH', log, id)
end
if trimmed == 0 then
  return id -- this costs less than a list
end
return {epoch, number, 0, 0, trimmed}
