/** What the command line sends as User-Agent, so that the activity can tell it from programs. */
export const CTL = 'ctl';
