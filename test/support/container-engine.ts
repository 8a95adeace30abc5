/** testcontainers, where an engine runs; its import alone takes half a second, so only a run that looks for one pays for it. */
export async function containerEngine(): Promise<typeof import('testcontainers') | undefined> {
  const testcontainers = await import('testcontainers');
  return await testcontainers.getContainerRuntimeClient().then(
    () => testcontainers,
    () => undefined,
  );
}
