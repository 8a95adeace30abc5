/** The User-Agent of the command line, by which the audit log distinguishes it from programs. */
export const CTL = 'ctl';
