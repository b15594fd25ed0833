-- token, nonce, revision, notes
local given, last = ARGV[3], m and m[REVISION]
if not owned then
  return LOST
elseif m[STATUS] ~= RUNNING and m[STATUS] ~= HELD then
  return ENDED
elseif #given > #last or (#given == #last and given > last) then -- the larger number
  m[REVISION], m[UPDATED] = given, t
  save('n', ARGV[4])
end
return DONE
