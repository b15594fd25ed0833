-- What every verb starts with: the time and the record of KEYS[1].
--
-- The record is a hash. Its field m holds everything of fixed size and the short texts, packed as
-- the array that the names below number; r, e and n hold the result, the error and the notes
-- where there are any; w is there while somebody waits for the end of the running attempt.
-- Times and the token count from `created`, which makes most of them short. All are whole numbers
-- below 2^53, which Lua keeps exactly; a revision may be larger and is text.
-- Every verb pays for what stands here: no functions, and the key is read once.

local RUNNING, COMPLETED, FAILED, RELEASED, HELD = 0, 1, 2, 3, 4
local DONE, ENDED, LOST = 1, 2, 3
local FORMAT, HOUR, DAY = 1, 3600000000, 86400000000
local STATUS, FINGERPRINT, NONCE, ATTEMPT, TOKEN, CREATED = 2, 3, 4, 5, 6, 7
local STARTED, UPDATED, LEASE_END, FINISHED, EXPIRES = 8, 9, 10, 11, 12
local REVISION, UNCERTAIN, LABEL, REFERENCE = 13, 14, 15, 16

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local kept = redis.call('HMGET', KEYS[1], 'm', 'r', 'e', 'n', 'w')
local packed, noted, awaited = kept[1], kept[4] and kept[4] ~= '', kept[5]
local m, t, alive = nil, 0, false -- the record, the time since its creation, not expired
if packed then
  local whole
  whole, m = pcall(cmsgpack.unpack, packed)
  if not whole or type(m) ~= 'table' or type(m[1]) ~= 'number' then
    return {-2, now} -- nobody's record, and nothing was changed
  elseif m[1] > FORMAT then
    return {-1, m[1]}
  elseif #m < REFERENCE or type(m[CREATED]) ~= 'number' or type(m[TOKEN]) ~= 'number' then
    return {-2, now}
  end
  t = now - m[CREATED]
  alive = not m[EXPIRES] or m[EXPIRES] > t
end
