/**
 * `node:http` without an `import`, which reads every export of a module of Node: the three for WebSockets would load a
 * whole HTTP client and HTTP/2, some 15 MB and 60 ms in each process.
 */
export const http = process.getBuiltinModule('node:http');
