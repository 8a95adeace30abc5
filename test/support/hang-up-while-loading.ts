import { registerHooks } from 'node:module';

/** For --import: a process of the gateway gets a SIGHUP for every module that it loads after its main module. */

let hasBegun = false;

registerHooks({
  load(url, context, next) {
    hasBegun ||= url.endsWith('/shared/process/arguments.ts');
    if (hasBegun) process.kill(process.pid, 'SIGHUP');
    return next(url, context);
  },
});
