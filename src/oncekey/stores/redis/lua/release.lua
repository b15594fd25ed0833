-- token, nonce, uncertain, hold, unused, lease, ttl; ARGV[2] is the error, where there is one
local unsure, hold, unused, lease, ttl = struct.unpack('>BBBi8i8', ARGV[1], at)
local becomes = hold == 1 and HELD or RELEASED
if status ~= RUNNING then
  return status == becomes and DONE or ENDED
end
-- A definite end does not move the moment since when the record has been uncertain.
if unsure == 1 or uncertain == 0 then
  finished = now
end
status, uncertain = becomes, math.max(uncertain, unsure)
lease_end, updated, attempt = now, now, attempt - unused
if hold == 1 then
  expires = 0
elseif noted_size > 0 then
  expires = now + ttl
else
  expires = now + math.max(lease, HOUR)
end
if ARGV[2] then
  tail = string.sub(whole, SIZE + 1, texts_end) .. ARGV[2]
    .. string.sub(whole, texts_end + error_size + 1)
  has_error, error_size = 1, #ARGV[2]
else
  tail = string.sub(whole, SIZE + 1)
end
