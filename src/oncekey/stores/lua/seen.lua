-- nonce, has fingerprint, fingerprint, lease, ttl, hold on expiry, attempts allowed, label,
-- reference, and a last one where the asker will wait for replicas
local nonce, fingerprint = ARGV[1], ARGV[2] == '1' and ARGV[3]
local GRANTED, BUSY, REPLAY, MISMATCH, IS_HELD, SPENT = 1, 2, 3, 4, 5, 6

local function answer(code)
  return {code, now, packed, kept[2], kept[3], kept[4]}
end

local differs, judged = false, false
if alive then
  local one = m[FINGERPRINT]
  if one and fingerprint and one ~= fingerprint then
    differs = string.match(one, '^[^:]*') == string.match(fingerprint, '^[^:]*')
  end
  judged = m[STATUS] ~= RELEASED or m[UNCERTAIN] or noted
  if differs and judged then
    return answer(MISMATCH)
  elseif m[STATUS] == COMPLETED or m[STATUS] == FAILED then
    return answer(REPLAY)
  elseif m[STATUS] == HELD then
    return answer(IS_HELD)
  elseif m[STATUS] == RELEASED and m[NONCE] == nonce then
    return answer(SPENT)
  elseif m[STATUS] == RUNNING and m[NONCE] ~= nonce and t < m[LEASE_END] then
    return answer(BUSY)
  end
end
