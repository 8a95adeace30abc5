import { registerHooks } from 'node:module';

/** For --import: a process of the gateway gets a SIGHUP with every module that it loads once its main has begun. */

let hasBegun = false;

registerHooks({
  load(url, context, next) {
    hasBegun ||= url.endsWith('/shared/process/arguments.ts');
    if (hasBegun) process.kill(process.pid, 'SIGHUP');
    return next(url, context);
  },
});
