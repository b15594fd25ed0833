-- ARGV[1] is the whole record, as it was stored elsewhere, and ARGV[2] when it expires, in
-- milliseconds, or 0. It is written only where there is none that is alive.
if alive then
  return LOST
end
status = string.byte(ARGV[1], 6)
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
end
whole = nil
if status == HELD then
  whole, now = string.rep('\0', 6), struct.unpack('>I8', ARGV[1], 40)
end
