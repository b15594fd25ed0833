-- token, nonce, lease, ttl
if not owned then
  return LOST
elseif m[STATUS] ~= RUNNING then
  return ENDED
end
m[LEASE_END], m[UPDATED] = t + tonumber(ARGV[3]), t
m[EXPIRES] = m[LEASE_END] + math.max(tonumber(ARGV[4]), DAY)
save()
return DONE
