/**
 * The descriptor to which this process logs: standard output, or the one that its parent gave it. Processes that share
 * a socket also share the flag that keeps their writes from blocking. libuv and Node clear this flag when a child
 * starts and when a process exits, but only through the descriptors 0 to 2. So a child logs to a higher one.
 */
export let logDescriptor = 1;

/** The environment of a child that gets its log as the descriptor after the message channel. */
export const LOGS_TO_4 = { LOG_DESCRIPTOR: '4' };

/** Takes the descriptor out of the environment, because children of this process do not have it. */
export function takeLogDescriptor(environment: NodeJS.ProcessEnv): void {
  logDescriptor = Number(environment.LOG_DESCRIPTOR ?? logDescriptor);
  delete environment.LOG_DESCRIPTOR;
}
