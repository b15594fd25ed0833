-- What every verb starts with: the time, the record of KEYS[1], and how to write it back.
--
-- The record is a hash. Its field m holds everything of fixed size and the short texts, packed;
-- r, e and n hold the result, the error and the notes where there are any.
-- Times and the token are kept as distances from `created`, which makes most of them short. All
-- are whole numbers below 2^53, which Lua keeps exactly; a revision may be larger and is text.

local RUNNING, COMPLETED, FAILED, RELEASED, HELD = 0, 1, 2, 3, 4
local DONE, ENDED, LOST = 1, 2, 3
local FORMAT, HOUR, DAY = 1, 3600000000, 86400000000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function whole(number)
  return string.format('%.0f', number)
end

local function later(moment, created)
  return moment and moment - created
end

local r = nil
local packed = redis.call('HGET', KEYS[1], 'm')
if packed then
  local m = cmsgpack.unpack(packed)
  if m[1] > FORMAT then
    return {-1, m[1]}
  end
  local created = m[7]
  r = {
    status = m[2], fingerprint = m[3], nonce = m[4], attempt = m[5],
    token = created + m[6], created = created, started = created + m[8],
    updated = created + m[9], lease_end = created + m[10],
    finished = m[11] and created + m[11], expires = m[12] and created + m[12],
    revision = m[13], uncertain = m[14], label = m[15], reference = m[16],
  }
end

local function expired()
  return r.expires and r.expires <= now
end

-- Token and nonce are those of the attempt that stands in the living record.
local function owned(token, nonce)
  return r and whole(r.token) == token and r.nonce == nonce and not expired()
end

local function next_token()
  return r and math.max(r.token + 1, now) or now
end

local function noted()
  return redis.call('HSTRLEN', KEYS[1], 'n') > 0
end

-- The record is stored as it is in `r`; Redis removes it in the millisecond after it expires.
-- Its bytes are put before: nothing may be written under a key that was removed at once.
local function save()
  local created = r.created
  packed = cmsgpack.pack({
    FORMAT, r.status, r.fingerprint, r.nonce, r.attempt, r.token - created, created,
    r.started - created, r.updated - created, r.lease_end - created,
    later(r.finished, created), later(r.expires, created),
    r.revision, r.uncertain, r.label, r.reference,
  })
  redis.call('HSET', KEYS[1], 'm', packed)
  if r.expires then
    redis.call('PEXPIREAT', KEYS[1], whole(math.ceil(r.expires / 1000)))
  else
    redis.call('PERSIST', KEYS[1])
  end
end

-- Bytes that may be missing: `given` is '1' where there are some.
local function put(field, given, bytes)
  if given == '1' then
    redis.call('HSET', KEYS[1], field, bytes)
  else
    redis.call('HDEL', KEYS[1], field)
  end
end

-- The record answers duplicates from now on.
local function end_as(status, ttl, has_result, result, has_error, error)
  r.status, r.uncertain = status, false
  r.updated, r.finished, r.expires = now, now, now + ttl
  put('r', has_result, result)
  put('e', has_error, error)
  save()
end
