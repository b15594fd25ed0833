-- token, nonce, lease, ttl
local lease, ttl = struct.unpack('>i8i8', ARGV[1], at)
if status ~= RUNNING then
  return ENDED
end
lease_end, updated, tail = now + lease, now, string.sub(whole, SIZE + 1)
expires = math.max(lease_end + math.max(ttl, DAY), uncertain == 1 and expires or 0)
