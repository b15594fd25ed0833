-- token, nonce, has error, error, uncertain, hold, unused, lease, ttl
local uncertain, hold, unused = ARGV[5] == '1', ARGV[6] == '1', ARGV[7] == '1'
local becomes = hold and HELD or RELEASED
if not owned then
  return LOST
elseif m[STATUS] ~= RUNNING then
  return m[STATUS] == becomes and DONE or ENDED
end
-- A definite end does not move the moment since when the record has been uncertain.
if uncertain or not m[UNCERTAIN] then
  m[FINISHED] = t
end
m[STATUS], m[UNCERTAIN] = becomes, m[UNCERTAIN] or uncertain
m[LEASE_END], m[UPDATED] = t, t
if unused then
  m[ATTEMPT] = m[ATTEMPT] - 1
end
if hold then
  m[EXPIRES] = false
elseif noted then
  m[EXPIRES] = t + tonumber(ARGV[9])
else
  m[EXPIRES] = t + math.max(tonumber(ARGV[8]), HOUR)
end
if ARGV[3] == '1' then
  save('e', ARGV[4])
else
  save()
end
wake()
return DONE
