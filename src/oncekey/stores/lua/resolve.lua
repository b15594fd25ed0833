-- token, status, ttl, has result, result, has error, error
if not m or m[STATUS] ~= HELD or m[CREATED] + m[TOKEN] ~= tonumber(ARGV[1]) then
  return LOST
end
local status, ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
m[TOKEN] = math.max(m[TOKEN] + 1, t) -- shuts the attempt out that may still be running
if status ~= RELEASED then
  end_as(status, ttl, ARGV[4], ARGV[5], ARGV[6], ARGV[7])
  return DONE
end
m[STATUS], m[UNCERTAIN], m[ATTEMPT] = RELEASED, false, 0
m[UPDATED], m[FINISHED], m[EXPIRES] = t, t, t + math.max(ttl, HOUR)
save()
wake()
return DONE
