import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { send } from '../../support/http.ts';
import { freePort } from '../../support/port.ts';
import { folder, type Service, startProgram } from '../machine/processes.ts';

/**
 * nginx, configured as a fast proxy according to its documentation: one worker by default, connections kept alive on
 * both sides without a limit on requests, compiled regular expressions, and a buffered log. Requests that a stopped
 * load generator leaves behind are finished, so that their connections to the core are free for the next round.
 */

const LUA_FOLDER = join(import.meta.dirname, 'nginx-lua');

/** Plain nginx without an access log, as the lower bound for the cost of a proxy. */
export async function startBareNginx(core: string): Promise<Service> {
  return await start('nginx', core, { modules: '', http: 'access_log off;', location: '', workers: 1 });
}

/**
 * nginx with ngx_lua, which makes each decision with one EVALSHA. The log line and the headers are those of the
 * gateway.
 */
export async function startNginxLua(name: string, core: string, redis: string, workers: number): Promise<Service> {
  const { hostname, port } = new URL(redis);
  const modules = ['ndk_http_module', 'ngx_http_lua_module']
    .map((name) => `load_module /usr/lib/nginx/modules/${name}.so;`)
    .join('\n');
  const http = `
    map "$request_method $uri" $operation {
      "GET /v1/pets" listPets;
      "POST /v1/pets" createPets;
      "~^GET /v1/pets/[0-9]+$" showPetById;
    }
    log_format gate escape=json '{"level":30,"time":"$time_iso8601","service":"gateway","requestId":"$request_id",'
      '"traceId":"$request_id","method":"$request_method","path":"$uri","operation":"$operation","status":$status,'
      '"code":"$code","keyId":"$key_id","plan":"$plan","outcome":"$outcome","address":"$remote_addr",'
      '"durationMs":$request_time,"msg":"request"}';
    access_log ${join(folder, `${name}.log`)} gate buffer=64k flush=1s;
    lua_package_path '${LUA_FOLDER}/?.lua;;';
    lua_code_cache on;
    lua_socket_log_errors off;
    lua_shared_dict allowances 10m;
    init_by_lua_block {
      gate = require 'gate'
      gate.configure{ redis_host = '${hostname}', redis_port = ${port}, script = '${LUA_FOLDER}/decide-one.lua' }
    }`;
  const location = `
        set $key_id '';
        set $plan '';
        set $outcome '';
        set $code '';
        access_by_lua_block { gate.pass() }
        proxy_set_header Authorization '';
        proxy_set_header X-Request-Id $request_id;
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Caller-Id $key_id;
        proxy_hide_header X-Request-Id;
        add_header X-Request-Id $request_id always;`;
  return await start(name, core, { modules, http, location, workers });
}

interface Parts {
  readonly modules: string;
  readonly http: string;
  readonly location: string;
  readonly workers: number;
}

async function start(name: string, core: string, parts: Parts): Promise<Service> {
  const port = await freePort();
  const prefix = join(folder, name);
  mkdirSync(prefix, { recursive: true });
  const file = join(prefix, 'nginx.conf');
  writeFileSync(file, configuration(name, port, core, parts));
  const url = `http://127.0.0.1:${port}`;
  return await startProgram(name, ['nginx', '-p', prefix, '-c', file, '-e', `${prefix}.err`], url, () =>
    send(`${url}/v1/pets`),
  );
}

function configuration(name: string, port: number, core: string, parts: Parts): string {
  const { modules, http, location, workers } = parts;
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${folder}/${name}/${kind};`)
    .join(' ');
  return `
${modules}
${process.getuid?.() === 0 ? 'user root;' : ''}
daemon off;
worker_processes ${workers};
worker_rlimit_nofile 16384;
pcre_jit on;
pid ${folder}/${name}/pid;
error_log ${folder}/${name}.err warn;
events {
    worker_connections 8192;
    multi_accept on;
}
http {
    ${paths}
    sendfile on;
    tcp_nodelay on;
    server_tokens off;
    keepalive_timeout 60s;
    keepalive_requests 1000000000;
    client_max_body_size 64k;
    client_body_buffer_size 64k;
    default_type application/json;
    ${http}
    upstream core {
        server ${new URL(core).host};
        keepalive 1024;
        keepalive_requests 1000000000;
        keepalive_timeout 4s;
    }
    server {
        listen 127.0.0.1:${port} backlog=4096;
        location / {
            ${location}
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_ignore_client_abort on;
            proxy_pass http://core;
        }
    }
}
`;
}
