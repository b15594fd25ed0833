-- What wrk sends: charges without a key, with a new key each, or with one key for all.
-- It ends with one line of JSON on its output.

local kind, name, number, whole

function init(args)
  kind, name, number = args[1], args[2], 0
  wrk.method = "POST"
  wrk.body = args[3]
  wrk.headers["Content-Type"] = "application/json"
  if kind == "duplicate" then
    wrk.headers["Idempotency-Key"] = name
  end
  whole = wrk.format()
end

function request()
  if kind ~= "new" then
    return whole
  end
  number = number + 1
  wrk.headers["Idempotency-Key"] = name .. "-" .. number
  return wrk.format()
end

function done(summary)
  local e = summary.errors
  local refused = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format('{"requests": %d, "refused": %d, "seconds": %f}\n',
    summary.requests, refused, summary.duration / 1e6))
end
