-- token, nonce, revision, notes
local function larger(one, other)
  if #one ~= #other then
    return #one > #other
  end
  return one > other
end

if not owned(ARGV[1], ARGV[2]) then
  return LOST
elseif r.status ~= RUNNING and r.status ~= HELD then
  return ENDED
elseif larger(ARGV[3], r.revision) then
  r.revision, r.updated = ARGV[3], now
  put('n', '1', ARGV[4])
  save()
end
return DONE
