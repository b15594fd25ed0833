-- token, nonce, status, ttl, and whether a result and an error follow
local ends, ttl, results, errors = struct.unpack('>Bi8BB', ARGV[1], at)
if status ~= RUNNING and status ~= HELD then
  return status == ends and DONE or ENDED
end
status, expires = ends, now + ttl
