-- What wrk sends, told by the environment, and what it reports: one line of JSON.
--
-- BENCH_METHOD, BENCH_BODY   the request; GET without a body when unset
-- BENCH_KEYS                 file with an API key a line: one is sent by all, several take turns

function init()
  wrk.method = os.getenv('BENCH_METHOD') or 'GET'
  wrk.body = os.getenv('BENCH_BODY')
  if wrk.body then wrk.headers['Content-Type'] = 'application/json' end

  local requests = {}
  for key in io.lines(os.getenv('BENCH_KEYS')) do
    wrk.headers['Authorization'] = 'Bearer ' .. key
    requests[#requests + 1] = wrk.format()
  end
  if #requests == 1 then return end

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
