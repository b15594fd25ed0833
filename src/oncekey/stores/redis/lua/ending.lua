-- The record ends as it is asked to. Where that is with a result or an error, they take the place
-- of an error that is left from an attempt before; there was never a result.
uncertain, updated, finished = 0, now, now
if ends ~= RELEASED then
  local error, noted = errors == 1 and ARGV[2 + results] or '', ''
  if noted_size > 0 then
    noted = string.sub(whole, texts_end + error_size + 1, texts_end + error_size + noted_size)
  end
  tail = string.sub(whole, SIZE + 1, texts_end) .. error .. noted
  if results == 1 then
    tail = tail .. ARGV[2]
  end
  has_result, has_error, error_size = results, errors, #error
end
