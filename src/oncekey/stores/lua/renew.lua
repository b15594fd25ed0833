-- token, nonce, lease, ttl
if not owned(ARGV[1], ARGV[2]) then
  return LOST
elseif r.status ~= RUNNING then
  return ENDED
end
r.lease_end, r.updated = now + tonumber(ARGV[3]), now
r.expires = r.lease_end + math.max(tonumber(ARGV[4]), DAY)
save()
return DONE
