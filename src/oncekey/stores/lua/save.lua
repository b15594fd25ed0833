-- Redis removes the record in the millisecond after it expires.
local function expire()
  if m[EXPIRES] then
    local moment = math.ceil((m[CREATED] + m[EXPIRES]) / 1000)
    redis.call('PEXPIREAT', KEYS[1], moment .. '') -- Lua writes out what has up to 14 digits
  else
    redis.call('PERSIST', KEYS[1])
  end
end

-- The record is stored as it is in `m`, with the bytes that are given as field and value. They
-- come first: nothing may be written under a key that was removed at once.
local function save(...)
  packed = cmsgpack.pack(m)
  redis.call('HSET', KEYS[1], 'm', packed, ...)
  expire()
end
