-- The record answers duplicates from now on. `has_result` and `has_error` are '1' where there is
-- one; an error may be left from an attempt before, a result never.
local function end_as(status, ttl, has_result, result, has_error, error)
  m[STATUS], m[UNCERTAIN] = status, false
  m[UPDATED], m[FINISHED], m[EXPIRES] = t, t, t + ttl
  if kept[3] and has_error ~= '1' then
    redis.call('HDEL', KEYS[1], 'e')
  end
  if has_result ~= '1' and has_error ~= '1' then
    save()
  elseif has_error ~= '1' then
    save('r', result)
  elseif has_result ~= '1' then
    save('e', error)
  else
    save('r', result, 'e', error)
  end
  wake()
end
