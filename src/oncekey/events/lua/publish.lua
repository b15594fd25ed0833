-- Keys: stream, log, job, number of shards; the topic of a job that has one.
-- Arguments: seq, stage, data and time as JSON, without the quotes around a text; what the JSON of all
-- events of the job begins with; mark, of eight letters, and digest; epoch; the id of the job, if it
-- has a topic or the event comes after others of a batch; then seq and stage of the event of the job
-- before it in the batch.
-- A line before this sets lifetime, wanted, slack, most, kept, recent and shards.
local call = redis.call
local stream, log, job = KEYS[1], KEYS[2], KEYS[3]
local seq, stage, data, time, stamp = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local mark = stamp:sub(1, 8)

local identity = 'm:' .. stage .. ':' .. seq
local known = call('HMGET', job, 'epoch', 'offset', identity, 'watched')
local epoch, last, marker = known[1], tonumber(known[2]) or 0, known[3]
if epoch and marker then -- with our own mark, the answer to this same request was lost
  local offset, first_mark, first_digest = marker:match('^(%d+)%.(%x+)%.(%x+)$')
  local again = first_mark ~= mark
  local differs = again and first_digest ~= stamp:sub(10) and 1 or 0
  return {epoch, tonumber(offset), again and 1 or 0, differs, 0}
end
local long = epoch and last > recent -- some events have no marker any more
if long and is_seen(job, stage, tonumber(seq)) then
  return {epoch, 0, 1, -1, 0} -- so old that only this is known
end

local before = ARGV[9]
if before then -- it may have been refused, by a stream that was full or a server without memory
  local there = epoch and call('HEXISTS', job, 'm:' .. ARGV[10] .. ':' .. before) == 1
  if not there and not (long and is_seen(job, ARGV[10], tonumber(before))) then
    return -1
  end
end

-- Commands that fail on a key of another type come before the first write, so that nothing is
-- half done.
local length = call('XLEN', stream)
local left = 0 -- of the log of an epoch that is forgotten
if not epoch then
  local agreed = call('GET', KEYS[4])
  if agreed ~= shards then
    return {false, agreed} -- after a loss of data somebody else may have begun the domain anew
  end
  left = call('LLEN', log) -- where there is an epoch, the first write is to the log
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
  call('ZADD', topic, now + lifetime, ARGV[8])
  call('EXPIRE', topic, lifetime)
  if not epoch then
    call('ZREMRANGEBYSCORE', topic, '-inf', now - 1)
    redis.pcall('PUBLISH', topic, '')
  end
end

local number = last + 1
if not epoch then
  epoch, number = ARGV[7], 1
  if left > 0 then
    call('DEL', log)
  end
end
local offset = tostring(number) -- once, since each use would convert it again
local place = offset .. '.' .. mark
-- Job and domain stand in the name of the log, and the names of the fields go without saying.
local element = place .. '.' .. seq .. '\t' .. time .. '\t' .. stage .. '\t' .. data
if call('RPUSH', log, element) > kept then
  drop_oldest(log, job)
end
local id = epoch .. '.' .. place
call('XADD', stream, '*', 'data', ARGV[5] .. ',"stage":"' .. stage .. '","seq":' .. seq ..
  ',"data":' .. data .. ',"timestamp":"' .. time .. '"}', 'id', id)
call('HSET', job, 'epoch', epoch, 'offset', offset, identity, offset .. '.' .. stamp)
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
