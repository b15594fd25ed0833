-- token, nonce, status, ttl, has result, result, has error, error
local status = tonumber(ARGV[3])
if not owned then
  return LOST
elseif m[STATUS] == RUNNING or m[STATUS] == HELD then
  end_as(status, tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], ARGV[8])
  return DONE
end
return m[STATUS] == status and DONE or ENDED
