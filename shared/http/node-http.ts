/**
 * Loads `node:http` without an `import`, which would read every export. Reading any of its three WebSocket exports
 * loads an HTTP client and HTTP/2, which costs each process some 15 MB and 60 ms.
 */
export const http = process.getBuiltinModule('node:http');
