/** The name of the person at this console, sent with each change. It is kept in this tab. */

const AUTHOR = 'author';

export const author = (): string => sessionStorage.getItem(AUTHOR) ?? '';
export const rememberAuthor = (name: string): void => sessionStorage.setItem(AUTHOR, name);
export const forgetAuthor = (): void => sessionStorage.removeItem(AUTHOR);
