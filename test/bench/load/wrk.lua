-- Makes wrk send the requests in a file, and report one line of JSON.
--
-- BENCH_ASKS   file with one request per line, `method path key`; they are sent in turn
-- BENCH_BODY   the body of each POST

function init()
  local body = os.getenv('BENCH_BODY')
  local requests = {}
  for line in io.lines(os.getenv('BENCH_ASKS')) do
    local method, path, key = line:match('^(%S+) (%S+) (%S+)$')
    local is_post = method == 'POST'
    wrk.headers['Authorization'] = 'Bearer ' .. key
    wrk.headers['Content-Type'] = is_post and 'application/json' or nil
    requests[#requests + 1] = wrk.format(method, path, wrk.headers, is_post and body or nil)
  end
  if #requests == 1 then
    request = function() return requests[1] end
    return
  end

  local at = 0
  function request()
    at = at % #requests + 1
    return requests[at]
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.stdout:write(string.format(
    '\n{"requests":%d,"seconds":%f,"p50Ms":%f,"p99Ms":%f,"refused":%d,"failures":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
