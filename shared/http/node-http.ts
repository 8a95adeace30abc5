/**
 * `node:http` without an `import`. An import reads every export, and the three for WebSockets load an HTTP client and
 * HTTP/2, which take some 15 MB and 60 ms in each process.
 */
export const http = process.getBuiltinModule('node:http');
