-- The gateway's steps before forwarding, in nginx with ngx_lua: bearer key, one EVALSHA over a pooled connection,
-- limit headers, 401 or 429.

local redis = require 'nginx.redis'
local sha256 = require 'nginx.sha256'
local to_hex = require('nginx.string').to_hex
local limits = require 'limits'

local byte, lower, sub = string.byte, string.lower, string.sub

local POOL_SIZE, IDLE_MS, TIMEOUT_MS = 1024, 60000, 1000
local HEADER_LENGTH, UNDERSCORE = 61, 95
local BODIES = {
  unauthorized = '{"code":"unauthorized","message":"A valid API key is required.","status":401}',
  rate_limit_exceeded = '{"code":"rate_limit_exceeded","message":"Too many requests.","status":429}',
  key_banned = '{"code":"key_banned","message":"This key is banned for a while.","status":429}',
  unavailable = '{"code":"unavailable","message":"Try again later.","status":503}',
}

local gate = {}
local host, port, script, script_sha

-- Runs once, when nginx starts.
function gate.configure(settings)
  host, port = settings.redis_host, settings.redis_port
  local file = assert(io.open(settings.script))
  script = file:read('*a')
  file:close()
  script_sha = to_hex(ngx.sha1_bin(script))
end

local function digest_of(secret)
  local hash = sha256:new()
  hash:update(secret)
  return (ngx.encode_base64(hash:final(), true):gsub('[+/]', { ['+'] = '-', ['/'] = '_' }))
end

-- The key's id and the digest of its secret, from `Bearer as_<12>_<32 + 6>`. Unlike the gateway, this does not verify
-- the 6 characters of the checksum.
local function credential(header)
  if not header or #header ~= HEADER_LENGTH or byte(header, 23) ~= UNDERSCORE then return nil end
  if lower(sub(header, 1, 7)) ~= 'bearer ' or sub(header, 8, 10) ~= 'as_' then return nil end
  return sub(header, 11, 22), digest_of(sub(header, 24, 55))
end

local function decide(id, digest)
  local connection = redis:new()
  connection:set_timeout(TIMEOUT_MS)
  local ok, fault = connection:connect(host, port)
  if not ok then return nil, fault end
  local key = 'gateway:key:{' .. id .. '}'
  local reply, refusal = connection:evalsha(script_sha, 1, key, digest)
  if not reply and refusal and sub(refusal, 1, 8) == 'NOSCRIPT' then
    reply, refusal = connection:eval(script, 1, key, digest)
  end
  if not reply then
    connection:close()
    return nil, refusal
  end
  connection:set_keepalive(IDLE_MS, POOL_SIZE)
  return reply
end

local function refuse(status, code)
  local body = BODIES[code]
  ngx.var.code = code
  ngx.status = status
  ngx.header['Content-Type'] = 'application/json'
  ngx.header['Content-Length'] = #body
  if status == 401 then ngx.header['WWW-Authenticate'] = 'Bearer' end
  ngx.print(body)
  return ngx.exit(ngx.HTTP_OK)
end

-- An allowance of 60 a minute per address, counted in nginx itself.
local function refuse_unknown()
  local minute = math.floor(ngx.now() / 60)
  local count = ngx.shared.allowances:incr(ngx.var.binary_remote_addr .. minute, 1, 0, 60)
  limits.set_of_address(ngx.header, count, (minute + 1) * 60)
  if count > 60 then return refuse(429, 'rate_limit_exceeded') end
  return refuse(401, 'unauthorized')
end

-- Runs for every request, before it is forwarded.
function gate.pass()
  local var = ngx.var
  local id, digest = credential(var.http_authorization)
  if not id then return refuse_unknown() end
  var.key_id = id
  local reply, fault = decide(id, digest)
  if not reply then
    ngx.log(ngx.ERR, 'no decision: ', fault)
    return refuse(503, 'unavailable')
  end
  local outcome = reply[1]
  var.outcome = outcome
  if not reply[2] then return refuse_unknown() end
  var.plan = reply[2]
  limits.set(ngx.header, reply)
  if outcome == 'refused' then return refuse(429, 'rate_limit_exceeded') end
  if outcome == 'banned' then return refuse(429, 'key_banned') end
end

return gate
