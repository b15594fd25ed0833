if not r or expired() then
  return false
end
local bytes = redis.call('HMGET', KEYS[1], 'r', 'e', 'n')
return {1, now, packed, bytes[1], bytes[2], bytes[3]}
