/** Whether a process with this id runs on this machine, whoever owns it (kill(2) with signal 0). */
export function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (fault) {
    return (fault as NodeJS.ErrnoException).code === 'EPERM';
  }
}
