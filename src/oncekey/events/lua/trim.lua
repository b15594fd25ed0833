-- Trim the stream, but keep every entry that some group has not acknowledged, and all entries if
-- there is no group. Remove what is longer than wanted, and what is older than the given time, if
-- any. Remove at most a thousand at a time: a script must be short, and publishers trim again every
-- few entries.
local function trim(stream, length, wanted, since)
  -- Defined in here, because a script creates a function each time it passes the definition.
  local function before(one, other)
    local ms, n = one:match('^(%d+)-(%d+)$')
    local other_ms, other_n = other:match('^(%d+)-(%d+)$')
    if ms ~= other_ms then
      return tonumber(ms) < tonumber(other_ms)
    end
    return tonumber(n) < tonumber(other_n)
  end

  local least -- the oldest entry that some group still needs
  for _, words in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for i = 1, #words, 2 do
      facts[words[i]] = words[i + 1]
    end
    local id = facts['last-delivered-id']
    if facts['pending'] > 0 then
      id = redis.call('XPENDING', stream, facts['name'])[2]
    end
    if not least or before(id, least) then
      least = id
    end
  end

  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
  if not least or not before(first, least) then
    return 0
  end
  local bound = first
  if length > wanted then
    local count = math.min(length - wanted, 1000) + 1
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', count)
    bound = oldest[#oldest][1]
  end
  if since and before(bound, since) then
    local old = redis.call('XRANGE', stream, '-', '(' .. since, 'COUNT', 1001)
    bound = #old > 1000 and old[#old][1] or since
  end
  if before(least, bound) then
    bound = least
  end
  return redis.call('XTRIM', stream, 'MINID', bound)
end
