-- token, nonce, status, ttl, has result, result, has error, error
local status = tonumber(ARGV[3])
if not owned(ARGV[1], ARGV[2]) then
  return LOST
elseif r.status == RUNNING or r.status == HELD then
  end_as(status, tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], ARGV[8])
  return DONE
end
return r.status == status and DONE or ENDED
