-- token, nonce, uncertain, hold, unused, counted, bare ttl, ttl; ARGV[2] is the error, if any
local unsure, hold, unused, counted, bare, ttl = struct.unpack('>BBBBi8i8', ARGV[1], at)
local becomes = hold == 1 and HELD or RELEASED
if status ~= RUNNING and not (status == HELD and unsure == 0 and hold == 0) then
  return status == becomes and DONE or ENDED
end
local promised = uncertain == 1 and expires or 0
-- What made a first attempt uncertain can only be the end of its lease.
if status == HELD and attempt <= 1 then
  uncertain = 0
end
-- A definite end does not move the moment since when the record has been uncertain.
if unsure == 1 or uncertain == 0 then
  finished = now
end
status, uncertain = becomes, math.max(uncertain, unsure)
lease_end, updated, attempt = now, now, math.max(0, attempt - unused)
if hold == 1 then
  expires = 0
elseif noted_size > 0 or uncertain == 1 or (counted == 1 and attempt > 0) then
  expires = math.max(now + math.max(ttl, DAY), promised)
else
  expires = math.max(now + bare, promised)
end
if ARGV[2] then
  tail = string.sub(whole, SIZE + 1, texts_end) .. ARGV[2]
    .. string.sub(whole, texts_end + error_size + 1)
  has_error, error_size = 1, #ARGV[2]
else
  tail = string.sub(whole, SIZE + 1)
end
