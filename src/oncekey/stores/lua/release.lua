-- token, nonce, has error, error, uncertain, hold, unused, lease, ttl
local uncertain, hold, unused = ARGV[5] == '1', ARGV[6] == '1', ARGV[7] == '1'
local becomes = hold and HELD or RELEASED
if not owned(ARGV[1], ARGV[2]) then
  return LOST
elseif r.status ~= RUNNING then
  return r.status == becomes and DONE or ENDED
end
-- A definite end does not move the moment since when the record has been uncertain.
if uncertain or not r.uncertain then
  r.finished = now
end
r.status, r.uncertain = becomes, r.uncertain or uncertain
r.lease_end, r.updated = now, now
if unused then
  r.attempt = r.attempt - 1
end
if hold then
  r.expires = false
elseif noted() then
  r.expires = now + tonumber(ARGV[9])
else
  r.expires = now + math.max(tonumber(ARGV[8]), HOUR)
end
if ARGV[3] == '1' then
  put('e', '1', ARGV[4])
end
save()
return DONE
