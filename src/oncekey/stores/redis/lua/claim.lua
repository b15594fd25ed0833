-- lease, ttl, hold on expiry, whether there is a fingerprint, attempts allowed, the sizes of nonce,
-- fingerprint, label and reference, and these; ARGV[2] is there where the asker waits for replicas
local GRANTED, BUSY, REPLAY, MISMATCH, IS_HELD, SPENT = 1, 2, 3, 4, 5, 6
local ASK, ANSWER, ANY_NUMBER = '>i8i8BBI4I2I2I2I2', '>Bi8', 4294967295
local lease, ttl, hold, knows, allowed, nonces, prints, labels, references, at =
  struct.unpack(ASK, ARGV[1])

local differs, mine = false, false
if alive then
  if known == 1 and knows == 1 then
    local kept_at = SIZE + nonce_size + 1
    local print = string.sub(ARGV[1], at + nonces, at + nonces + prints - 1)
    if prints ~= print_size or string.find(whole, print, kept_at, true) ~= kept_at then
      local kept = string.sub(whole, kept_at, kept_at + print_size - 1)
      differs = string.match(kept, '^[^:]*') == string.match(print, '^[^:]*')
    end
  end
  if status == RUNNING or status == RELEASED then
    mine = string.sub(whole, SIZE + 1, SIZE + nonce_size)
      == string.sub(ARGV[1], at, at + nonces - 1)
  end
  local answer
  if differs and (status ~= RELEASED or uncertain == 1 or noted_size > 0) then
    answer = MISMATCH
  elseif status == COMPLETED or status == FAILED then
    answer = REPLAY
  elseif status == HELD then
    answer = IS_HELD
  elseif status == RELEASED and mine then
    answer = SPENT
  elseif status == RUNNING and not mine and now < lease_end then
    answer = BUSY
  end
  if answer then
    return struct.pack(ANSWER, answer, now) .. whole
  end
end

-- Nothing that was seen answers the claim: it is granted, or held.
local answer, fresh = GRANTED, not whole
if not alive or differs then
  token = whole and math.max(token + 1, now) or now
  known, attempt, created, finished, revision = knows, 1, now, 0, '\0\0\0\0\0\0\0\0'
  uncertain, has_result, has_error, awaited, hand_size = 0, 0, 0, 0, 0
  error_size, noted_size = 0, 0
  nonce_size, print_size, label_size, reference_size = nonces, prints, labels, references
  tail = string.sub(ARGV[1], at)
elseif status == RUNNING and mine then
  if ARGV[2] then -- replicas can be waited for only after a write, and a full server allows this
    redis.call('PEXPIREAT', KEYS[1], string.format('%d', math.ceil(expires / 1000)))
  end
  return struct.pack(ANSWER, GRANTED, now) .. whole
else
  if status == RUNNING then
    finished, uncertain = lease_end, 1
  end
  if (allowed ~= ANY_NUMBER and attempt >= allowed) or (status == RUNNING and hold == 1) then
    answer, tail = IS_HELD, string.sub(whole, SIZE + 1)
  else
    local label_at, named = SIZE + nonce_size + print_size, at + nonces + prints
    if knows == 1 then
      tail = string.sub(ARGV[1], at, named - 1)
      known, print_size = 1, prints
    else
      tail = string.sub(ARGV[1], at, at + nonces - 1)
        .. string.sub(whole, SIZE + nonce_size + 1, label_at)
    end
    nonce_size = nonces
    if labels > 0 then
      tail = tail .. string.sub(ARGV[1], named, named + labels - 1)
    else
      tail = tail .. string.sub(whole, label_at + 1, label_at + label_size)
    end
    if references > 0 then
      tail = tail .. string.sub(ARGV[1], named + labels)
    else
      tail = tail .. string.sub(whole, label_at + label_size + 1, texts_end - hand_size)
    end
    label_size = labels > 0 and labels or label_size
    reference_size = references > 0 and references or reference_size
    tail = tail .. string.sub(whole, texts_end - hand_size + 1)
    token, attempt = math.max(token + 1, now), attempt + 1
  end
end
updated = now
if answer == IS_HELD then
  status, expires = HELD, 0
else
  local promised = uncertain == 1 and expires or 0
  status, started, lease_end = RUNNING, now, now + lease
  expires = math.max(lease_end + math.max(ttl, DAY), promised)
end
