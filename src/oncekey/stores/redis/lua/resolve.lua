-- token, status, ttl, and whether a result, an error and an entry for the audit trail follow
local asked, ends, ttl, results, errors, by_hand = struct.unpack('>i8Bi8BBB', ARGV[1])
if not whole or status ~= HELD or token ~= asked then
  return LOST
end
token = math.max(token + 1, now) -- shuts the attempt out that may still be running
if by_hand == 1 then -- who and why stay with the record as long as it lives
  local hand = struct.pack('>I8', now) .. ARGV[#ARGV]
  whole = string.sub(whole, 1, texts_end - hand_size) .. hand .. string.sub(whole, texts_end + 1)
  texts_end, hand_size = texts_end - hand_size + #hand, #hand
end
status, expires, tail = ends, now + ttl, string.sub(whole, SIZE + 1)
if ends == RELEASED then
  attempt, expires = 0, now + math.max(ttl, DAY)
end
