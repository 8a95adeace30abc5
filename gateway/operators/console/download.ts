/** Saves a text as a file. Calls of the admin API need a token, which a plain link would not send. */
export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser may still read it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
