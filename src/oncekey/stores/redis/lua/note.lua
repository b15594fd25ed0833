-- token, nonce, revision as eight bytes; ARGV[2] holds the notes
local given = struct.unpack('>c8', ARGV[1], at)
if status ~= RUNNING and status ~= HELD then
  return ENDED
elseif given <= revision then
  return DONE
end
local before, after = texts_end + error_size, texts_end + error_size + noted_size
tail = string.sub(whole, SIZE + 1, before) .. ARGV[2] .. string.sub(whole, after + 1)
revision, updated, noted_size = given, now, #ARGV[2]
