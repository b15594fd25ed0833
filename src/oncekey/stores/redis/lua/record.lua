-- What every verb starts with: the time and the record of KEYS[1], as far as it is of fixed size.
--
-- The record is one string: a head of fixed size, which HEAD describes; then nonce, fingerprint,
-- label, reference, who resolved it by hand, error and notes, whose sizes stand in the head; then
-- the result. Times are
-- microseconds and 0 for not yet, as in the record; all numbers are below 2^53, which Lua keeps
-- exactly. A revision may be larger: it is eight bytes, which compare as the number does. `awaited`
-- is 1 while somebody waits for the end of the running attempt.
--
-- What is asked comes packed, in ARGV[1]; byte strings, which may be large, follow it as they are.
-- Every verb pays for what stands here: one string costs the server half of what a hash does, and
-- neither functions nor tables are made where local variables do.

local RUNNING, COMPLETED, FAILED, RELEASED, HELD = 0, 1, 2, 3, 4
local DONE, ENDED, LOST = 1, 2, 3
local FORMAT, DAY = 1, 86400000000
local HEAD, SIZE = '>c4BBBBBBBI4I8I8I8I8I8I8I8c8I2I2I2I2I2I4I4', 97

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local whole = redis.call('GET', KEYS[1])
local alive, tail = false, '' -- not expired; what follows the head
local magic, format, status, uncertain, known, has_result, has_error, awaited
local attempt, created, token, started, updated, lease_end, finished, expires, revision
local nonce_size, print_size, label_size, reference_size, hand_size = 0, 0, 0, 0, 0
local error_size, noted_size = 0, 0
if whole then
  if #whole < SIZE then
    if string.sub(whole, 1, 4) ~= 'once' then
      return redis.error_reply('WRONGTYPE this string is no record')
    end
    return {-2, now} -- damaged, and nothing was changed
  end
  magic, format, status, uncertain, known, has_result, has_error, awaited, attempt, created,
    token, started, updated, lease_end, finished, expires, revision, nonce_size, print_size,
    label_size, reference_size, hand_size, error_size, noted_size = struct.unpack(HEAD, whole)
  if magic ~= 'once' then
    return redis.error_reply('WRONGTYPE this string is no record')
  elseif format > FORMAT then
    return {-1, format}
  elseif #whole < SIZE + nonce_size + print_size + label_size + reference_size + hand_size
      + error_size + noted_size then
    return {-2, now}
  end
  alive = expires == 0 or expires > now
end
local texts_end = SIZE + nonce_size + print_size + label_size + reference_size + hand_size
