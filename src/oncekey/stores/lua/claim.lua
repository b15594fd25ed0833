-- nonce, has fingerprint, fingerprint, lease, ttl, hold on expiry, attempts allowed, label, reference
local nonce, fingerprint = ARGV[1], ARGV[2] == '1' and ARGV[3]
local lease, ttl, hold = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local allowed, label, reference = tonumber(ARGV[7]), ARGV[8], ARGV[9]
local GRANTED, BUSY, REPLAY, MISMATCH, IS_HELD, SPENT = 1, 2, 3, 4, 5, 6

local function answer(code)
  local bytes = redis.call('HMGET', KEYS[1], 'r', 'e', 'n')
  return {code, now, packed, bytes[1], bytes[2], bytes[3]}
end

local function version(text)
  return string.match(text, '^[^:]*')
end

local function differs()
  local kept = r.fingerprint
  return kept and fingerprint and kept ~= fingerprint and version(kept) == version(fingerprint)
end

local function run_from_now()
  r.status, r.nonce, r.started, r.updated = RUNNING, nonce, now, now
  r.lease_end = now + lease
  r.expires = r.lease_end + math.max(ttl, DAY)
  save()
end

local function grant_first()
  local token = next_token()
  if r then
    redis.call('DEL', KEYS[1])
  end
  r = {
    token = token, fingerprint = fingerprint, attempt = 1, created = now, finished = false,
    revision = '0', uncertain = false, label = label, reference = reference,
  }
  run_from_now()
  return {GRANTED, now, packed, false, false, false}
end

local function grant_next()
  r.token = next_token()
  r.attempt = r.attempt + 1
  r.fingerprint = fingerprint or r.fingerprint
  r.label = label ~= '' and label or r.label
  r.reference = reference ~= '' and reference or r.reference
  run_from_now()
  return answer(GRANTED)
end

local function keep_held()
  r.status, r.updated, r.expires = HELD, now, false
  save()
  return answer(IS_HELD)
end

local function attempts_left()
  return not allowed or r.attempt < allowed
end

if not r or expired() then
  return grant_first()
end
local nothing_alive = r.status == RELEASED and not r.uncertain and not noted()
if differs() and not nothing_alive then
  return answer(MISMATCH)
end
if r.status == RUNNING then
  if r.nonce == nonce then
    return answer(GRANTED)
  elseif now < r.lease_end then
    return answer(BUSY)
  end
  r.finished, r.uncertain = r.lease_end, true
  if hold or not attempts_left() then
    return keep_held()
  end
  return grant_next()
elseif r.status == RELEASED then
  if r.nonce == nonce then
    return answer(SPENT)
  elseif differs() then
    return grant_first()
  elseif not attempts_left() then
    return keep_held()
  end
  return grant_next()
elseif r.status == HELD then
  return answer(IS_HELD)
end
return answer(REPLAY)
