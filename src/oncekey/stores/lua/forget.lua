-- token, force
if r and not expired() then
  local alive = r.status == RUNNING or r.status == HELD
  if whole(r.token) ~= ARGV[1] or (alive and ARGV[2] ~= '1') then
    return LOST
  end
end
redis.call('DEL', KEYS[1])
return DONE
