-- Markers of old events are replaced by one bit each: a block says which of 512 numbers of a stage
-- were seen, as 64 bytes, or as '*' if all were. These functions use nothing but their arguments, and
-- are only called for long jobs.
local function is_seen(job, stage, seq)
  local block = redis.call('HGET', job, ('b:%s:%.0f'):format(stage, math.floor(seq / 512)))
  if not block or block == '*' then
    return block == '*'
  end
  local place = seq % 512
  local byte = block:byte(math.floor(place / 8) + 1)
  return math.floor(byte / 2 ^ (place % 8)) % 2 == 1
end

-- Replace the markers of all events up to this offset.
local function compact(job, offset)
  local fields, facts, blocks, gone = redis.call('HGETALL', job), {}, {}, {}
  for i = 1, #fields, 2 do
    facts[fields[i]] = fields[i + 1]
  end
  for field, marker in pairs(facts) do
    local stage, seq = field:match('^m:(.*):(%d+)$')
    if stage and tonumber(marker:match('^%d+')) <= offset then
      seq = tonumber(seq)
      local name = ('b:%s:%.0f'):format(stage, math.floor(seq / 512))
      if not blocks[name] then
        local known = facts[name]
        blocks[name] = known and {known:byte(1, 64)} or {}
        for n = 1, 64 do
          blocks[name][n] = blocks[name][n] or 0
        end
      end
      local place = seq % 512
      local n = math.floor(place / 8) + 1
      blocks[name][n] = blocks[name][n] + 2 ^ (place % 8) -- each event has one marker
      gone[#gone + 1] = field
    end
  end
  for name, bytes in pairs(blocks) do
    local block = string.char(unpack(bytes))
    redis.call('HSET', job, name, block == ('\255'):rep(64) and '*' or block)
  end
  for n = 1, #gone, 1000 do
    redis.call('HDEL', job, unpack(gone, n, math.min(n + 999, #gone)))
  end
end

-- Drop the oldest event of a log, and remember the greatest seq of all that were dropped. An event
-- that is the state of the job is kept.
local function drop_oldest(log, job)
  local element = redis.call('LPOP', log)
  local offset, seq = element:match('^(%d+)%.%x+%.(%d+)\t')
  if not offset then
    return -- none of ours
  end
  local known = redis.call('HMGET', job, 'gone', 'top')
  local greatest = known[1] and known[1]:match(' (%d+)$') or '-1'
  if tonumber(greatest) > tonumber(seq) then
    seq = greatest
  end
  redis.call('HSET', job, 'gone', offset .. ' ' .. seq)
  if known[2] and known[2]:match('^%d+ (%d+) ') == offset then
    redis.call('HSET', job, 'state', element)
  end
end
