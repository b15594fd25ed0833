-- token, status, ttl, has result, result, has error, error
if not r or r.status ~= HELD or whole(r.token) ~= ARGV[1] then
  return LOST
end
local status, ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
r.token = next_token() -- shuts the attempt out that may still be running
if status ~= RELEASED then
  end_as(status, ttl, ARGV[4], ARGV[5], ARGV[6], ARGV[7])
  return DONE
end
r.status, r.uncertain, r.attempt = RELEASED, false, 0
r.updated, r.finished, r.expires = now, now, now + math.max(ttl, HOUR)
save()
return DONE
