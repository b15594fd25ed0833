-- Nothing that was seen answers the claim: it is granted, or held.
local lease, ttl = tonumber(ARGV[4]), tonumber(ARGV[5])
local allowed, label, reference = tonumber(ARGV[7]), ARGV[8], ARGV[9]
local lifetime = lease + math.max(ttl, DAY)

if not alive or differs then
  local token = m and math.max(m[CREATED] + m[TOKEN] + 1, now) or now
  if m then
    redis.call('DEL', KEYS[1])
  end
  m = {
    FORMAT, RUNNING, fingerprint, nonce, 1, token - now, now, 0, 0, lease, false, lifetime, '0',
    false, label, reference,
  }
  save()
  return {GRANTED, now, packed, false, false, false}
end

if m[STATUS] == RUNNING then
  if m[NONCE] == nonce then
    if ARGV[10] then -- replicas can be waited for only after a write, and a full server allows this
      expire()
    end
    return answer(GRANTED)
  end
  m[FINISHED], m[UNCERTAIN] = m[LEASE_END], true
end
if (allowed and m[ATTEMPT] >= allowed) or (m[STATUS] == RUNNING and ARGV[6] == '1') then
  m[STATUS], m[UPDATED], m[EXPIRES] = HELD, t, false
  save()
  return answer(IS_HELD)
end
m[TOKEN] = math.max(m[TOKEN] + 1, t)
m[ATTEMPT] = m[ATTEMPT] + 1
m[FINGERPRINT] = fingerprint or m[FINGERPRINT]
m[LABEL] = label ~= '' and label or m[LABEL]
m[REFERENCE] = reference ~= '' and reference or m[REFERENCE]
m[STATUS], m[NONCE], m[STARTED], m[UPDATED] = RUNNING, nonce, t, t
m[LEASE_END], m[EXPIRES] = t + lease, t + lifetime
save()
return answer(GRANTED)
